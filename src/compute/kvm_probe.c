#include "compute/kvm_probe.h"
#include "base/file.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "compute/probe_rom.h"
#include "compute/qemu_args.h"
#include "loop/child.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

LOG_MODULE("compute.kvm");

#define ROM_FD 3

void kvm_probe_rom(uint8_t rom[KVM_PROBE_ROM_SIZE])
{
    static const uint8_t reset[] = {0xea, 0x00, 0x00, 0x00, 0xf0}; /* jmp F000:0000 */
    memset(rom, 0xf4, KVM_PROBE_ROM_SIZE);
    memcpy(rom, probe_rom, sizeof(probe_rom));
    memcpy(rom + KVM_PROBE_ROM_SIZE - 16, reset, sizeof(reset));
}

static void say(struct kvm_answer *a, bool is_usable, const char *fmt, ...) PRINTF_LIKE(3, 4);
static void say(struct kvm_answer *a, bool is_usable, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    a->is_usable = is_usable;
    (void)vsnprintf(a->reason, sizeof(a->reason), fmt, ap);
    va_end(ap);
}

static void cache_path(const struct kvm_probe_opts *o, char *path, size_t size)
{
    (void)snprintf(path, size, "%s/kvm-probe.json", o->run_dir);
}

static bool cache_read(const struct kvm_probe_opts *o, struct kvm_answer *ret)
{
    char path[256];
    cache_path(o, path, sizeof(path));
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    AUTO(json_freep) struct json *j = NULL;
    if (file_read(path, 4096, &text, &n, NULL) < 0 ||
        json_parse(str_n(text, n), &j, NULL) < 0) {
        return false;
    }
    if (!str_eqc(json_get_str(j, "boot_id"), o->boot_id) ||
        !str_eqc(json_get_str(j, "device"), o->device) ||
        json_get_u64(j, "uid", UINT64_MAX) != o->uid) {
        return false;
    }
    ret->is_usable = json_get_bool(j, "usable", false);
    ret->gid = (gid_t)json_get_u64(j, "gid", 0);
    (void)snprintf(ret->reason, sizeof(ret->reason), "%.*s",
                   STR_ARG(json_get_str(j, "reason")));
    return true;
}

static void cache_write(const struct kvm_probe_opts *o, const struct kvm_answer *a)
{
    char path[256];
    cache_path(o, path, sizeof(path));
    AUTO_BUF b;
    buf_init(&b, 4096);
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_cstr(&w, "boot_id", o->boot_id);
    jw_cstr(&w, "device", o->device);
    jw_u64(&w, "uid", o->uid);
    jw_bool(&w, "usable", a->is_usable);
    jw_u64(&w, "gid", a->gid);
    jw_cstr(&w, "reason", a->reason);
    jw_obj_end(&w);
    struct err err = ERR_INIT;
    if (file_write_atomic(path, buf_str(&b), 0600, &err) < 0) {
        log_warn("cache.failed", KV_ERR(&err));
    }
}

/* Whether a guest's user can open the device, through its owner group when need be. */
static bool can_open(const struct kvm_probe_opts *o, struct kvm_answer *a)
{
    struct stat st;
    AUTO_FD fd = open(o->device, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        say(a, false, errno == ENOENT ? "this host has no %s" : "%s cannot be opened",
            o->device);
        return false;
    }
    if (o->uid == 0 || fstat(fd, &st) < 0 || (st.st_mode & 0006) == 0006) {
        return true;
    }
    if ((st.st_mode & 0060) == 0060 && st.st_gid != 0) {
        a->gid = st.st_gid;
        return true;
    }
    say(a, false, "%s is open to root only (mode %04o): guests run as users of their own",
        o->device, (unsigned)st.st_mode & 07777);
    return false;
}

static int make_rom(int *ret_fd)
{
    uint8_t rom[KVM_PROBE_ROM_SIZE];
    kvm_probe_rom(rom);
    AUTO_FD fd = memfd_create("kvm-probe", MFD_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    int r = file_write_all(fd, rom, sizeof(rom));
    if (r < 0) {
        return r;
    }
    *ret_fd = steal_fd(&fd);
    return 0;
}

/* Waits for the end of our child; kills it at the limit. Returns its wait status, or -ETIMEDOUT. */
static int wait_end(pid_t pid, uint64_t timeout_ns)
{
    AUTO_FD pidfd = (int)syscall(SYS_pidfd_open, pid, 0);
    struct pollfd p = {.fd = pidfd, .events = POLLIN};
    int status = 0;
    bool is_late = poll(&p, 1, (int)(timeout_ns / NS_PER_MS)) == 0;
    if (is_late) {
        (void)kill(pid, SIGKILL);
        /* A guest that hangs in the kernel may not even die: it is left behind, and this
         * service does not wait for it. */
        if (poll(&p, 1, 2000) > 0) {
            (void)waitpid(pid, NULL, 0);
        }
        return -ETIMEDOUT;
    }
    return waitpid(pid, &status, 0) == pid ? status : -ECHILD;
}

static void run_guest(const struct kvm_probe_opts *o, struct kvm_answer *a)
{
    AUTO_FD rom_fd = -1;
    if (make_rom(&rom_fd) < 0) {
        say(a, false, "the probe guest could not be made");
        return;
    }
    /* Exactly the machine that guests get: what differs could work here and fail there. */
    char machine[128];
    const char *cpu = "";
    qemu_machine(o->arch, true, machine, sizeof(machine), &cpu);
    const char *const argv[] = {o->qemu_path ? o->qemu_path : qemu_program(o->arch),
                                "-nodefaults",
                                "-no-user-config",
                                "-display",
                                "none",
                                "-machine",
                                machine,
                                "-cpu",
                                cpu,
                                "-m",
                                "16",
                                "-bios",
                                "/proc/self/fd/3",
                                "-device",
                                "isa-debug-exit,iobase=0xf4,iosize=0x04",
                                "-sandbox",
                                "on",
                                NULL};
    const struct child_fd fds[] = {{.fd = rom_fd, .target = ROM_FD}};
    const gid_t groups[] = {a->gid};
    const struct child_opts c = {
        .argv = argv,
        .fds = fds,
        .n_fds = 1,
        .is_user_set = o->uid != 0,
        .uid = (uid_t)o->uid,
        .gid = (gid_t)o->uid,
        .groups = groups,
        .n_groups = a->gid ? 1 : 0,
        .has_new_session = true,
        .has_no_new_privs = true,
        .has_no_core = true,
    };
    pid_t pid = 0;
    struct err err = ERR_INIT;
    if (child_spawn(&c, &pid, &err) < 0) {
        say(a, false, "the probe guest did not start: %.120s", err.msg);
        return;
    }
    int status = wait_end(pid, o->timeout_ns);
    if (status == -ETIMEDOUT) {
        say(a, false, "%s opens, but a guest on it did not run within %u s", o->device,
            (unsigned)(o->timeout_ns / NS_PER_S));
    } else if (status < 0 || !WIFEXITED(status) || WEXITSTATUS(status) != KVM_PROBE_EXIT) {
        say(a, false, "%s opens, but QEMU could not run a guest on it", o->device);
    } else {
        say(a, true, "a guest ran on %s", o->device);
    }
}

void kvm_probe(const struct kvm_probe_opts *o, struct kvm_answer *ret)
{
    struct kvm_answer a = {.is_usable = false};
    if (!cache_read(o, &a)) {
        a = (struct kvm_answer){.is_usable = false};
        if (strcmp(o->arch, "x86_64") != 0) {
            /* The probe guest is x86 code; elsewhere an open device is believed. */
            if (can_open(o, &a)) {
                say(&a, true, "%s opens", o->device);
            }
        } else if (can_open(o, &a)) {
            run_guest(o, &a);
        }
        cache_write(o, &a);
    }
    *ret = a;
}
