#include "base/arena.h"
#include "kv/kv.h"
#include "model/config.h"
#include "model/presence.h"
#include "vpcd/caps.h"
#include "vpcd/native.h"
#include "vpcd/responders.h"
#include "vpcd/vpcd.h"

#include <string.h>

#ifndef SPINIFEX_VERSION
#define SPINIFEX_VERSION "0"
#endif

static int teardown(struct service *s, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    int r = config_load(s->config_path, &cfg, err);
    r = r ? r : responders_teardown(cfg, err);
    return r ? r : native_teardown(cfg, err);
}

static int run(struct service *s, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    AUTO(kv_closep) struct kv *kv = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    AUTO(vpcd_freep) struct vpcd *v = NULL;
    int r = config_load(s->config_path, &cfg, err);
    r = r ? r : caps_drop(err);
    r = r ? r : kv_open_remote(config_run_path(a, cfg, "state.sock"), &kv, err);
    r = r ? r : vpcd_new(s, cfg, kv, &v, err);
    if (r) {
        return r;
    }
    AUTO(presence_stopp)
    UNUSED struct presence *p = presence_start(kv, cfg, "vpcd", SPINIFEX_VERSION);
    return service_run(s);
}

/* "--teardown" is the one argument without a value. */
static bool take_teardown(int *argc, char **argv)
{
    for (int i = 1; i < *argc; i++) {
        if (strcmp(argv[i], "--teardown") == 0) {
            memmove(&argv[i], &argv[i + 1], (size_t)(*argc - i) * sizeof(*argv));
            (*argc)--;
            return true;
        }
    }
    return false;
}

int main(int argc, char **argv)
{
    struct service s;
    struct err err = ERR_INIT;
    int status = 1;
    bool is_teardown = take_teardown(&argc, argv);
    if (service_start(&s, "spx-vpcd", argc, argv, NULL, 0, &status)) {
        return status;
    }
    status =
        (is_teardown ? teardown(&s, &err) : run(&s, &err)) < 0 ? service_failed(&s, &err) : 0;
    service_done(&s);
    return status;
}
