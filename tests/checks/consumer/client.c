/* client.c: a foreign program with the installed C client: lists the models at each address it is given. */
#include <decomposek_client.h>
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    struct dk_client *client = NULL;
    struct dk_error error = {0};
    if (dk_client_open("unix:/nonexistent", NULL, &client, &error) != DK_UNAVAILABLE ||
        !strstr(error.message, "/nonexistent"))
        return 1;
    for (int i = 1; i < argc; i++) {
        struct dk_client_model_info models[4];
        size_t count = 0;
        if (dk_client_open(argv[i], NULL, &client, &error) != DK_OK ||
            dk_client_list_models(client, models, 4, &count, &error) != DK_OK) {
            fprintf(stderr, "client: %s: %s: %s\n", argv[i], dk_status_name(error.status), error.message);
            return 1;
        }
        printf("client: decomposek %s, %zu models at %s\n", dk_client_version(), count, argv[i]);
        dk_client_close(client);
    }
    return 0;
}
