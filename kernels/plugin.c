/* plugin.c: dlopen of the CUDA backend and the checks before it is believed. */
#include "kernels/plugin.h"

#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#ifndef DK_LIBDIR
#define DK_LIBDIR "lib"
#endif

static const char *const places[] = {".", "../lib", ("../" DK_LIBDIR)};

/* Directory of the program or shared library this function was linked into. */
static bool own_directory(char *out, size_t size)
{
    static const char anchor = 0;
    Dl_info info;
    struct link_map *map = NULL;
    if (dladdr1(&anchor, &info, (void **)&map, RTLD_DL_LINKMAP) == 0) {
        return false;
    }
    if (map && map->l_name[0] == '\0') { /* the program itself: dli_fname is argv[0], not a path */
        ssize_t length = readlink("/proc/self/exe", out, size - 1);
        if (length <= 0) {
            return false;
        }
        out[length] = '\0';
    } else if ((size_t)snprintf(out, size, "%s", info.dli_fname) >= size) {
        return false;
    }
    char *slash = strrchr(out, '/');
    if (!slash) {
        return false;
    }
    *slash = '\0';
    return true;
}

/* `text` is dlerror's. */
static dk_status fail_to_load(const char *path, const char *text, struct dk_error *error)
{
    if (text && strstr(text, "libcuda.so")) {
        return dk_fail(error, DK_UNAVAILABLE, "no CUDA driver (libcuda.so.1 missing)");
    }
    return dk_fail(error, DK_UNAVAILABLE, "%s does not load: %s", path, text ? text : "unknown error");
}

static dk_status load_file(const char *path, void **library, struct dk_error *error)
{
    *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    return *library ? DK_OK : fail_to_load(path, dlerror(), error);
}

static dk_status load_from_search_path(void **library, struct dk_error *error)
{
    *library = dlopen(DK_PLUGIN_FILE, RTLD_NOW | RTLD_LOCAL);
    if (*library) {
        return DK_OK;
    }
    const char *text = dlerror();
    /* The loader names first what it could not open: the plugin itself or something that it needs. */
    if (text && strncmp(text, DK_PLUGIN_FILE ":", strlen(DK_PLUGIN_FILE ":")) == 0) {
        return dk_fail(error, DK_UNAVAILABLE, "%s not found", DK_PLUGIN_FILE);
    }
    return fail_to_load(DK_PLUGIN_FILE, text, error);
}

static dk_status find_and_load(const char *path, void **library, struct dk_error *error)
{
    if (path) {
        return access(path, F_OK) == 0 ? load_file(path, library, error)
                                       : dk_fail(error, DK_UNAVAILABLE, "%s not found", path);
    }
    char directory[PATH_MAX], file[PATH_MAX + 64];
    if (own_directory(directory, sizeof directory)) {
        for (size_t i = 0; i < sizeof places / sizeof places[0]; i++) {
            snprintf(file, sizeof file, "%s/%s/%s", directory, places[i], DK_PLUGIN_FILE);
            if (access(file, F_OK) == 0) {
                return load_file(file, library, error);
            }
        }
    }
    return load_from_search_path(library, error);
}

dk_status dk_plugin_load(const char *path, const struct dk_backend **out, struct dk_error *error)
{
    void *library = NULL;
    dk_status status = find_and_load(path, &library, error);
    if (status != DK_OK) {
        return status;
    }
    const char *name = path ? path : DK_PLUGIN_FILE;
    void *symbol = dlsym(library, DK_PLUGIN_ENTRY);
    if (!symbol) {
        status = dk_fail(error, DK_UNAVAILABLE, "%s has no symbol %s", name, DK_PLUGIN_ENTRY);
        goto unload;
    }
    dk_plugin_entry entry;
    memcpy(&entry, &symbol, sizeof entry); /* ISO C has no such cast; POSIX guarantees the representation */
    const struct dk_backend *backend = entry();
    if (!backend || backend->abi != DK_BACKEND_ABI) {
        status = dk_fail(error, DK_UNAVAILABLE, "%s was built for backend ABI %u, this library needs %d",
                         name, backend ? backend->abi : 0, DK_BACKEND_ABI);
        goto unload;
    }
    *out = backend;
    return DK_OK;
unload:
    dlclose(library);
    return status;
}
