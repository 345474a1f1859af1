// consumer.cpp: the same headers from C++17, linked.
#include <cstring>
#include <decomposek.h>

int main()
{
    return std::strlen(dk_version()) > 0 && dk_dtype_bytes(DK_BF16) == 2 ? 0 : 1;
}
