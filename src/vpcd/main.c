#include "base/arena.h"
#include "kv/kv.h"
#include "model/config.h"
#include "model/presence.h"
#include "os/caps.h"
#include "vpcd/native.h"
#include "vpcd/own_dir.h"
#include "vpcd/responders.h"
#include "vpcd/vpcd.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <string.h>
#include <sys/file.h>

#define LOCK_NAME "vpcd/lock"

#ifndef SPINIFEX_VERSION
#define SPINIFEX_VERSION "0"
#endif

/* Two of us would undo each other's work. The lock goes with the process. */
static int take_lock(const struct config *cfg, struct arena *a, int *ret_fd, struct err *err)
{
    const char *path = config_run_path(a, cfg, LOCK_NAME);
    int r = own_dir(config_run_path(a, cfg, "vpcd"), 0711, err);
    if (r) {
        return r;
    }
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (flock(fd, LOCK_EX | LOCK_NB)) {
        return fail(err, -EBUSY, "AlreadyRunning", "another spx-vpcd runs with %s",
                    cfg->run_dir);
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

static int teardown(struct service *s, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    AUTO_FD lock = -1;
    int r = config_load(s->config_path, &cfg, err);
    r = r ? r : take_lock(cfg, a, &lock, err);
    r = r ? r : responders_teardown(cfg, err);
    r = r ? r : native_teardown(cfg, err);
    if (!r && (unlink(config_run_path(a, cfg, LOCK_NAME)) ||
               rmdir(config_run_path(a, cfg, "vpcd")))) {
        r = fail(err, -errno, "WriteFailed", "%s/vpcd: %m", cfg->run_dir);
    }
    return r;
}

/* What networks, namespaces and starting responders take. */
static int drop_caps(struct err *err)
{
    static const unsigned kept[] = {
        CAP_NET_ADMIN,        /* links, routes, nftables, taps */
        CAP_NET_BIND_SERVICE, /* ports 53, 67, 80, 123 inside VPCs */
        CAP_NET_RAW,          /* IP_PKTINFO with a source of our choice */
        CAP_SYS_ADMIN,        /* setns, unshare, the bind mounts that keep namespaces */
        CAP_SETUID,
        CAP_SETGID,
        CAP_SETPCAP, /* responders run as nobody */
        CAP_CHOWN,
        CAP_DAC_OVERRIDE,
        CAP_FOWNER, /* their folders */
        CAP_KILL,
        CAP_SYS_RESOURCE, /* their limits */
    };
    uint64_t keep = 0;
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        keep |= UINT64_C(1) << kept[i];
    }
    return caps_keep(keep, err);
}

static int run(struct service *s, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    AUTO(kv_closep) struct kv *kv = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(ARENA_REQUEST_MAX);
    AUTO_FD lock = -1;
    AUTO(vpcd_freep) struct vpcd *v = NULL;
    int r = config_load(s->config_path, &cfg, err);
    r = r ? r : take_lock(cfg, a, &lock, err);
    r = r ? r : drop_caps(err);
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
