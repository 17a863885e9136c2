#include "base/arena.h"
#include "base/num.h"
#include "base/time.h"
#include "compute/compute.h"
#include "model/presence.h"
#include "os/caps.h"
#include <errno.h>
#include <limits.h>
#include <linux/capability.h>
#include <stdio.h>

#ifndef SPINIFEX_VERSION
#define SPINIFEX_VERSION "0"
#endif

struct args {
    const char *accel, *qemu, *stop_limit, *terminate_limit, *reboot_limit, *launch_limit,
        *detach_pause;
};

/* spx-guestmon lies beside this program. */
static int find_monitor(char *out, size_t size, struct err *err)
{
    char self[PATH_MAX];
    ssize_t n = readlink("/proc/self/exe", self, sizeof(self) - 1);
    if (n <= 0) {
        return fail(err, -errno, "OpenFailed", "/proc/self/exe: %m");
    }
    self[n] = '\0';
    const char *slash = strrchr(self, '/');
    int len = snprintf(out, size, "%.*s/spx-guestmon", (int)(slash ? slash - self : 0), self);
    if (len < 0 || (size_t)len >= size || access(out, X_OK) != 0) {
        return fail(err, -ENOENT, "OpenFailed", "%s is missing or cannot be run", out);
    }
    return 0;
}

static int seconds(const char *name, const char *text, uint64_t *ns, struct err *err)
{
    uint64_t s = 0;
    if (!text) {
        return 0;
    }
    if (num_u64(str_c(text), 86400, &s) < 0) {
        return fail(err, -EINVAL, "BadArguments", "%s takes seconds, not \"%s\"", name, text);
    }
    *ns = s * NS_PER_S;
    return 0;
}

static int read_args(const struct args *a, struct compute_opts *o, struct err *err)
{
    o->limits = (struct vm_limits)VM_LIMITS_DEFAULT;
    o->detach_ns = 5 * NS_PER_S;
    o->qemu_path = a->qemu;
    const struct {
        const char *name, *text;
        uint64_t *ns;
    } all[] = {
        {"--stop-limit", a->stop_limit, &o->limits.stop_ns},
        {"--terminate-limit", a->terminate_limit, &o->limits.terminate_ns},
        {"--reboot-limit", a->reboot_limit, &o->limits.reboot_ns},
        {"--launch-limit", a->launch_limit, &o->limits.launch_ns},
        {"--detach-pause", a->detach_pause, &o->detach_ns},
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        int r = seconds(all[i].name, all[i].text, all[i].ns, err);
        if (r < 0) {
            return r;
        }
    }
    if (a->accel && strcmp(a->accel, "auto") != 0 && strcmp(a->accel, "tcg") != 0) {
        return fail(err, -EINVAL, "BadArguments", "--accel takes auto or tcg, not \"%s\"",
                    a->accel);
    }
    return 0;
}

/* Starting guests under users of their own, giving them their sockets, ending them: no more of
 * root than that. */
static int drop_caps(struct err *err)
{
    static const unsigned kept[] = {CAP_SETUID,       CAP_SETGID, CAP_CHOWN,       CAP_FOWNER,
                                    CAP_DAC_OVERRIDE, CAP_KILL,   CAP_SYS_RESOURCE};
    uint64_t keep = 0;
    for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
        keep |= UINT64_C(1) << kept[i];
    }
    return caps_keep(keep, err);
}

static int run(struct service *s, const struct args *args, struct err *err)
{
    AUTO(config_freep) struct config *cfg = NULL;
    AUTO(arena_freep) struct arena *a = arena_new(8u << 20);
    AUTO(kv_closep) struct kv *kv = NULL;
    struct host host;
    char monitor[PATH_MAX];
    struct compute_opts o = {
        .loop = s->loop, .service = s, .host = &host, .monitor_path = monitor};
    int r = read_args(args, &o, err);
    r = r < 0 ? r : config_load(s->config_path, &cfg, err);
    r = r < 0 ? r : find_monitor(monitor, sizeof(monitor), err);
    r = r < 0 ? r : drop_caps(err);
    r = r < 0 ? r
              : host_look(a, cfg, args->accel ? args->accel : "auto", args->qemu, &host, err);
    r = r < 0 ? r : kv_open_remote(config_run_path(a, cfg, "state.sock"), &kv, err);
    if (r < 0) {
        return r;
    }
    o.cfg = cfg;
    o.kv = kv;
    AUTO(compute_freep) struct compute *c = NULL;
    r = compute_new(&o, &c, err);
    if (r < 0) {
        return r;
    }
    AUTO(presence_stopp)
    UNUSED struct presence *presence = presence_start(kv, cfg, "compute", SPINIFEX_VERSION);
    return service_run(s);
}

int main(int argc, char **argv)
{
    struct args args = {0};
    const struct service_arg known[] = {
        {"--accel", "auto|tcg  KVM when a probe guest runs on it (default), or emulation",
         &args.accel},
        {"--qemu", "PATH  QEMU program to use", &args.qemu},
        {"--stop-limit", "SECONDS  from the power button to the end by force (60)",
         &args.stop_limit},
        {"--terminate-limit", "SECONDS  the same for terminated instances (20)",
         &args.terminate_limit},
        {"--reboot-limit", "SECONDS  the same for a reboot (240)", &args.reboot_limit},
        {"--launch-limit", "SECONDS  disks, interfaces and QEMU must be ready in (120)",
         &args.launch_limit},
        {"--detach-pause", "SECONDS  between two requests to let a disk go (5)",
         &args.detach_pause},
    };
    struct service s;
    struct err err = ERR_INIT;
    int exit_status = 1;
    if (service_start(&s, "spx-compute", argc, argv, known, ARRAY_LEN(known), &exit_status) !=
        0) {
        return exit_status;
    }
    exit_status = run(&s, &args, &err) < 0 ? service_failed(&s, &err) : 0;
    service_done(&s);
    return exit_status;
}
