#include "spx/doctor.h"

#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/statfs.h>
#include <sys/timex.h>
#include <unistd.h>

#define TEXT_MAX    (4u << 20)
#define MIB         (UINT64_C(1) << 20)
#define GIB         (UINT64_C(1) << 30)
#define TMPFS_MAGIC 0x01021994
#define YEAR_2024_S UINT64_C(1704067200)

void doctor_add(struct doctor *d, const char *name, enum doctor_state state, const char *cure,
                const char *fmt, ...)
{
    char text[600];
    va_list ap;
    if (d->n == DOCTOR_MAX) {
        return;
    }
    va_start(ap, fmt);
    (void)vsnprintf(text, sizeof(text), fmt, ap);
    va_end(ap);
    d->v[d->n++] = (struct doctor_finding){name, state, arena_str_dup(d->a, str_c(text)),
                                           cure ? arena_str_dup(d->a, str_c(cure)) : STR_NONE};
}

struct str doctor_text(struct doctor *d, const char *path)
{
    char full[PATH_MAX], *p = NULL;
    size_t n = 0;
    (void)snprintf(full, sizeof(full), "%s%s", d->root, path);
    if (file_read(full, TEXT_MAX, &p, &n, NULL) < 0) {
        return STR_NONE;
    }
    struct str s = arena_str_dup(d->a, str_n(p, n));
    free(p);
    return s;
}

static bool is_there(struct doctor *d, const char *path)
{
    char full[PATH_MAX];
    (void)snprintf(full, sizeof(full), "%s%s", d->root, path);
    return access(full, F_OK) == 0;
}

/* The value of "key : value" or "key value kB". */
static struct str value_of(struct str text, const char *key)
{
    struct str line;
    while (text.p && str_next(&text, '\n', &line)) {
        if (str_has_prefixc(line, key)) {
            struct str v = str_skip(line, strlen(key));
            while (v.n > 0 && (v.p[0] == ' ' || v.p[0] == '\t' || v.p[0] == ':')) {
                v = str_skip(v, 1);
            }
            return str_trim(v);
        }
    }
    return STR_NONE;
}

static bool has_word(struct str text, const char *want)
{
    struct str w;
    while (text.p && str_next(&text, ' ', &w)) {
        if (str_eqc(w, want)) {
            return true;
        }
    }
    return false;
}

/* Whether guests can run on the processor itself; what they need is told by compute's probe. */
static void look_at_cpu(struct doctor *d)
{
    struct str info = doctor_text(d, "/proc/cpuinfo"), flags = value_of(info, "flags");
    bool is_arm = !str_is_set(flags);
    bool has_virt = is_arm || has_word(flags, "vmx") || has_word(flags, "svm");
    bool is_vm = has_word(flags, "hypervisor");
    if (!has_virt) {
        doctor_add(d, "cpu", DOCTOR_WARN,
                   is_vm ? "switch nested virtualisation on for this VM in its host"
                         : "switch VT-x or SVM on in the firmware (BIOS) of this machine",
                   "no vmx or svm%s: guests are emulated, and boot in 10 s to minutes",
                   is_vm ? " in this VM" : "");
        return;
    }
    if (!is_there(d, "/dev/kvm")) {
        bool is_container = is_there(d, "/.dockerenv") || is_there(d, "/run/.containerenv");
        doctor_add(d, "kvm", DOCTOR_WARN,
                   is_container ? "give /dev/kvm to this container"
                                : "modprobe kvm_intel or kvm_amd; 'dmesg | grep -i kvm' tells "
                                  "when the firmware has it switched off",
                   "no /dev/kvm: guests are emulated, and boot in 10 s to minutes");
        return;
    }
    doctor_add(d, "kvm", DOCTOR_OK, NULL,
               "/dev/kvm is there; spx-compute runs a probe guest on it before it is used");
}

static void look_at_kernel(struct doctor *d)
{
    struct str uring = str_trim(doctor_text(d, "/proc/sys/kernel/io_uring_disabled"));
    if (str_eqc(uring, "2") || str_eqc(uring, "1")) {
        doctor_add(d, "io_uring", DOCTOR_FAIL, "sysctl -w kernel.io_uring_disabled=0",
                   "kernel.io_uring_disabled is %.*s: volumes cannot be served",
                   STR_ARG(uring));
    } else {
        doctor_add(d, "io_uring", DOCTOR_OK, NULL, "allowed");
    }
    bool has_tun = is_there(d, "/dev/net/tun");
    doctor_add(d, "tun", has_tun ? DOCTOR_OK : DOCTOR_FAIL, has_tun ? NULL : "modprobe tun",
               has_tun ? "/dev/net/tun is there" : "no /dev/net/tun: guests get no network");
    bool has_vhost = is_there(d, "/dev/vhost-net");
    doctor_add(d, "vhost-net", has_vhost ? DOCTOR_OK : DOCTOR_WARN,
               has_vhost ? NULL : "modprobe vhost_net",
               has_vhost ? "/dev/vhost-net is there"
                         : "no /dev/vhost-net: the network of guests costs more CPU");
    bool has_netns = is_there(d, "/proc/self/ns/net");
    if (!has_netns) {
        doctor_add(d, "namespaces", DOCTOR_FAIL, "use a kernel with CONFIG_NET_NS",
                   "no network namespaces: VPCs cannot be made");
    }
}

static void look_at_memory(struct doctor *d)
{
    struct str info = doctor_text(d, "/proc/meminfo"), kib = value_of(info, "MemAvailable");
    uint64_t n = 0;
    if (num_u64(str_cut(kib, ' '), UINT64_MAX >> 10, &n) < 0) {
        doctor_add(d, "memory", DOCTOR_WARN, "mount /proc", "/proc/meminfo cannot be read");
        return;
    }
    unsigned long long mib = n >> 10;
    enum doctor_state st = mib < 512 ? DOCTOR_FAIL : mib < 1024 ? DOCTOR_WARN : DOCTOR_OK;
    doctor_add(d, "memory", st, st == DOCTOR_OK ? NULL : "stop other programs, or add memory",
               "%llu MiB are free; services need about 150, each guest its own size", mib);
}

/* The folder, or the nearest one above it that is there already. */
static const char *nearest(struct arena *a, const char *path)
{
    char *p = (char *)(uintptr_t)arena_cstr(a, arena_str_dup(a, str_c(path)));
    while (p[1] != '\0' && access(p, F_OK) != 0) {
        char *slash = strrchr(p, '/');
        if (!slash || slash == p) {
            return "/";
        }
        *slash = '\0';
    }
    return p;
}

static void look_at_disk(struct doctor *d, const char *data_dir)
{
    const char *dir = nearest(d->a, data_dir);
    struct statfs st;
    if (statfs(dir, &st) < 0) {
        doctor_add(d, "disk", DOCTOR_FAIL, "look at the file system", "%s: %s", dir,
                   strerror(errno));
        return;
    }
    uint64_t room = (uint64_t)st.f_bavail * (uint64_t)st.f_bsize;
    if ((unsigned long)st.f_type == TMPFS_MAGIC) {
        doctor_add(d, "disk", DOCTOR_WARN, "put data_dir on a disk",
                   "%s lies in memory: everything is lost with the power", dir);
    }
    enum doctor_state s = room < GIB ? DOCTOR_FAIL : room < 3 * GIB ? DOCTOR_WARN : DOCTOR_OK;
    doctor_add(d, "disk", s,
               s == DOCTOR_OK ? NULL : "free some, or set data_dir to another disk",
               "%llu MiB are free below %s", (unsigned long long)(room / MIB), dir);
    int fd = open(dir, O_TMPFILE | O_RDWR | O_DIRECT | O_CLOEXEC, 0600);
    if (fd >= 0) {
        close(fd);
    } else if (errno == EINVAL) {
        doctor_add(d, "direct-io", DOCTOR_WARN, "use ext4, XFS or Btrfs below data_dir",
                   "the file system of %s has no O_DIRECT: volumes are slower", dir);
    }
}

static void look_at_clock(struct doctor *d)
{
    struct timex t = {0};
    int state = adjtimex(&t);
    if (time_wall_ns() / NS_PER_S < YEAR_2024_S) {
        doctor_add(d, "clock", DOCTOR_FAIL, "set the date; install chrony",
                   "the clock is years behind: certificates and signatures will not be valid");
    } else if (state == TIME_ERROR || (t.status & STA_UNSYNC) != 0) {
        doctor_add(d, "clock", DOCTOR_WARN,
                   "apt-get install chrony; without a network, set the date by hand",
                   "nobody keeps the clock: clients more than 5 minutes off are refused");
    } else {
        doctor_add(d, "clock", DOCTOR_OK, NULL, "kept in step");
    }
}

static bool is_in_path(const char *name)
{
    static const char path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    const char *own = getenv("PATH");
    for (unsigned i = 0; i < 2; i++) {
        struct str dir, rest = str_c(i == 0 ? path : own ? own : "");
        while (rest.p && str_next(&rest, ':', &dir)) {
            char full[PATH_MAX];
            if (snprintf(full, sizeof(full), "%.*s/%s", STR_ARG(dir), name) <
                    (int)sizeof(full) &&
                access(full, X_OK) == 0) {
                return true;
            }
        }
    }
    return false;
}

static void look_at_programs(struct doctor *d)
{
    static const struct {
        const char *name, *package, *what;
    } want[] = {
#if defined(__aarch64__)
        {"qemu-system-aarch64", "qemu-system-arm", "guests"},
#else
        {"qemu-system-x86_64", "qemu-system-x86", "guests"},
#endif
        {"qemu-img", "qemu-utils", "imports of images"},
    };
    bool is_whole = true;
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        if (!is_in_path(want[i].name)) {
            char cure[80];
            (void)snprintf(cure, sizeof(cure), "apt-get install %s", want[i].package);
            doctor_add(d, "programs", DOCTOR_FAIL, cure, "no %s, which %s need", want[i].name,
                       want[i].what);
            is_whole = false;
        }
    }
    if (is_whole) {
        doctor_add(d, "programs", DOCTOR_OK, NULL, "qemu and qemu-img are there");
    }
}

static void look_at_limits(struct doctor *d)
{
    struct rlimit r = {0};
    struct str caps = value_of(doctor_text(d, "/proc/self/status"), "CapEff");
    uint64_t mask = 0;
    bool is_known = num_hex_u64(caps.p ? caps : STR("0"), UINT64_MAX, &mask) == 0;
    bool may_raise = !is_known || (mask >> 24 & 1) != 0; /* CAP_SYS_RESOURCE */
    if (getrlimit(RLIMIT_MEMLOCK, &r) == 0 && r.rlim_max < 64 * MIB && geteuid() == 0 &&
        !may_raise) {
        doctor_add(
            d, "memlock", DOCTOR_WARN,
            "raise the limit of locked memory (ulimit -l) where this container is started",
            "%llu MiB of locked memory: enough for the disks of about %llu guests",
            (unsigned long long)(r.rlim_max / MIB),
            (unsigned long long)(r.rlim_max / MIB * 3 / 2));
    }
}

size_t doctor_denials(struct str log)
{
    static const char *const ours[] = {"spx-", "qemu-system", "\"spx\""};
    size_t n = 0;
    struct str line;
    while (log.p && str_next(&log, '\n', &line)) {
        bool is_denied = str_find_str(line, STR("apparmor=\"DENIED\"")) >= 0 ||
                         str_find_str(line, STR("avc:  denied")) >= 0;
        bool is_ours = false;
        for (size_t i = 0; i < ARRAY_LEN(ours); i++) {
            is_ours = is_ours || str_find_str(line, str_c(ours[i])) >= 0;
        }
        n += is_denied && is_ours;
    }
    return n;
}

/* What the kernel's log holds now, without waiting for more. */
static void look_at_denials(struct doctor *d)
{
    char path[PATH_MAX], rec[8192];
    (void)snprintf(path, sizeof(path), "%s/dev/kmsg", d->root);
    int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    size_t n = 0;
    for (unsigned i = 0; fd >= 0 && i < 100000; i++) {
        ssize_t got = read(fd, rec, sizeof(rec));
        if (got < 0 && errno == EPIPE) {
            continue; /* overwritten while it was read */
        }
        if (got <= 0) {
            break;
        }
        n += doctor_denials(str_n(rec, (size_t)got));
    }
    if (fd >= 0) {
        close(fd);
    }
    if (n > 0) {
        doctor_add(d, "denials", DOCTOR_FAIL,
                   "journalctl -k | grep -E 'DENIED|avc:' shows them; allow it in that profile",
                   "AppArmor or SELinux denied %zu times something to our programs", n);
    }
}

void doctor_host(struct doctor *d, const char *data_dir)
{
    look_at_cpu(d);
    look_at_kernel(d);
    look_at_memory(d);
    look_at_disk(d, data_dir);
    look_at_clock(d);
    look_at_programs(d);
    look_at_limits(d);
    look_at_denials(d);
}
