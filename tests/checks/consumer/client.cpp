// client.cpp: the C client's header from C++17, linked.
#include <cstring>
#include <decomposek_client.h>

int main()
{
    dk_client_options options = {};
    options.ring_entries = 5000; // more than there are
    dk_client *client = nullptr;
    dk_error error = {};
    return dk_client_open("unix:/nonexistent", &options, &client, &error) == DK_BAD_VALUE &&
                   std::strstr(error.message, "5000")
               ? 0
               : 1;
}
