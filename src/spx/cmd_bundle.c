#include "base/file.h"
#include "base/num.h"
#include "base/time.h"
#include "os/nft.h"
#include "spx/bundle.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/doctor.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <unistd.h>

#define TEXT_MAX (8u << 20)
#define TAR_MAX  (64u << 20)
#define LOG_MAX  (512 << 10) /* of each log: the newest */

struct bundle {
    struct spx *s;
    struct buf tar;
    uint64_t now_s;
};

/* Everything goes through here: nothing reaches the file unread. */
static void add(struct bundle *b, const char *name, struct str text)
{
    AUTO_BUF clean;
    char full[100];
    buf_init(&clean, 2 * TEXT_MAX);
    bundle_redact(text, &clean);
    if (!buf_ok(&clean)) {
        buf_clear(&clean);
        buf_addc(&clean, "too long\n");
    }
    if (snprintf(full, sizeof(full), "spinifex-support/%s", name) < (int)sizeof(full)) {
        bundle_add(&b->tar, full, buf_str(&clean), b->now_s);
    }
}

static void add_file(struct bundle *b, const char *name, const char *path)
{
    char *p = NULL;
    size_t n = 0;
    struct err e = ERR_INIT;
    int r = file_read(path, TEXT_MAX, &p, &n, &e);
    add(b, name, r < 0 ? str_c(e.msg) : str_n(p, n));
    free(p);
}

/* Newest bytes, from the start of a line. */
static void add_tail(struct bundle *b, const char *name, const char *path)
{
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0 || !S_ISREG(st.st_mode)) {
        return;
    }
    off_t from = st.st_size > LOG_MAX ? st.st_size - LOG_MAX : 0;
    AUTO_BUF text;
    buf_init(&text, LOG_MAX + 1);
    char *room = buf_reserve(&text, LOG_MAX);
    ssize_t n = room ? pread(fd, room, LOG_MAX, from) : -1;
    if (n <= 0) {
        return;
    }
    buf_commit(&text, (size_t)n);
    struct str t = buf_str(&text);
    ptrdiff_t nl = from > 0 ? str_find(t, '\n', 0) : -1;
    add(b, name, str_skip(t, (size_t)(nl + 1)));
}

static void add_logs(struct bundle *b)
{
    const char *dir =
        arena_cstr(b->s->arena, arena_fmt(b->s->arena, "%s/log", b->s->cfg->data_dir));
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX], name[80];
        if (e->d_name[0] != '.' &&
            snprintf(path, sizeof(path), "%s/%s", dir, e->d_name) < (int)sizeof(path) &&
            snprintf(name, sizeof(name), "log/%s", e->d_name) < (int)sizeof(name)) {
            add_tail(b, name, path);
        }
    }
    if (d) {
        closedir(d);
    }
}

/* Names of what is wanted, and values only of what is: a spec may hold user data. */
static int list_one(void *ctx, const struct kv_item *item, struct err *err)
{
    (void)err;
    struct buf *out = ctx;
    bool is_shown =
        str_has_prefixc(item->key, "status/") || str_has_prefixc(item->key, "node/");
    buf_fmt(out, "%.*s %llu\n", STR_ARG(item->key), (unsigned long long)item->mod_rev);
    if (is_shown) {
        buf_fmt(out, "  %.*s\n", STR_ARG(item->value));
    }
    return 0;
}

static void add_state(struct bundle *b)
{
    static const char *const prefixes[] = {"spec/",     "status/",         "node/",
                                           "claim/ip/", "claim/publicip/", "claim/capacity/"};
    AUTO_BUF out;
    struct err e = ERR_INIT;
    buf_init(&out, TEXT_MAX);
    int r = spx_state(b->s, &e);
    for (size_t i = 0; r == 0 && i < ARRAY_LEN(prefixes); i++) {
        r = data_each(b->s->kv, str_c(prefixes[i]), list_one, &out, &e);
    }
    buf_fmt(&out, "%s\n", r < 0 ? e.msg : "complete");
    add(b, "state.txt", buf_str(&out));
}

static void add_doctor(struct bundle *b)
{
    AUTO_BUF out;
    struct doctor d = {.a = b->s->arena, .root = ""};
    buf_init(&out, TEXT_MAX);
    doctor_host(&d, b->s->cfg->data_dir);
    doctor_net(&d, b->s->cfg);
    doctor_services(b->s, &d);
    for (size_t i = 0; i < d.n; i++) {
        static const char *const words[] = {"ok", "warning", "FAULT"};
        buf_fmt(&out, "%s %s %.*s\n", d.v[i].name, words[d.v[i].state], STR_ARG(d.v[i].what));
    }
    add(b, "doctor.txt", buf_str(&out));
}

static void add_host(struct bundle *b)
{
    AUTO(nft_closep) struct nft *n = NULL;
    struct utsname u;
    struct str rules = STR_NONE;
    struct err e = ERR_INIT;
    AUTO_BUF out;
    buf_init(&out, 4096);
    if (uname(&u) == 0) {
        buf_fmt(&out, "spx %s\n%s %s %s\n", SPX_VERSION, u.release, u.version, u.machine);
    }
    add(b, "versions.txt", buf_str(&out));
    add_file(b, "os-release.txt", "/etc/os-release");
    add_file(b, "meminfo.txt", "/proc/meminfo");
    add_file(b, "links.txt", "/proc/net/dev");
    add_file(b, "routes.txt", "/proc/net/route");
    add_file(b, "addresses.txt", "/proc/net/fib_trie");
    int r = nft_open(&n, &e);
    r = r < 0 ? r : nft_list(n, "list ruleset", &rules, &e);
    add(b, "nft.txt", r < 0 ? str_c(e.msg) : rules);
}

/* What the kernel said of our programs, of KVM, of what it denied, and of memory. */
static void add_kernel(struct bundle *b)
{
    static const char *const words[] = {"spx",           "qemu",     "kvm",
                                        "DENIED",        "denied",   "vhost",
                                        "Out of memory", "oom-kill", "I/O error"};
    char rec[8192];
    AUTO_BUF out;
    AUTO_FD fd = open("/dev/kmsg", O_RDONLY | O_NONBLOCK | O_CLOEXEC);
    buf_init(&out, TEXT_MAX);
    for (unsigned i = 0; fd >= 0 && i < 100000; i++) {
        ssize_t n = read(fd, rec, sizeof(rec));
        if (n < 0 && errno == EPIPE) {
            continue; /* overwritten while it was read */
        }
        if (n <= 0) {
            break;
        }
        struct str line = str_cut(str_n(rec, (size_t)n), '\n');
        for (size_t w = 0; w < ARRAY_LEN(words); w++) {
            if (str_find_str(line, str_c(words[w])) >= 0) {
                buf_fmt(&out, "%.*s\n", STR_ARG(line));
                break;
            }
        }
    }
    add(b, "kernel.txt", buf_str(&out));
}

/* Our processes: name, memory, and the arguments of the monitors and of QEMU. */
static void add_processes(struct bundle *b)
{
    AUTO_BUF out;
    DIR *d = opendir("/proc");
    buf_init(&out, TEXT_MAX);
    for (struct dirent *e; d && (e = readdir(d));) {
        char path[PATH_MAX], *comm = NULL, *args = NULL;
        size_t n = 0;
        if (e->d_name[0] < '0' || e->d_name[0] > '9') {
            continue;
        }
        (void)snprintf(path, sizeof(path), "/proc/%s/comm", e->d_name);
        if (file_read(path, 4096, &comm, &n, NULL) == 0 &&
            (str_has_prefixc(str_n(comm, n), "spx") ||
             str_has_prefixc(str_n(comm, n), "qemu"))) {
            size_t n_args = 0;
            (void)snprintf(path, sizeof(path), "/proc/%s/cmdline", e->d_name);
            if (file_read(path, 1u << 20, &args, &n_args, NULL) == 0) {
                for (size_t i = 0; i < n_args; i++) {
                    args[i] = args[i] == '\0' ? ' ' : args[i];
                }
            }
            buf_fmt(&out, "%s %s\n", e->d_name, args ? args : comm);
        }
        free(comm);
        free(args);
    }
    if (d) {
        closedir(d);
    }
    add(b, "processes.txt", buf_str(&out));
}

/* A new file that only the person behind sudo reads. */
static int store(struct bundle *b, const char *path, struct err *err)
{
    uint64_t uid = 0, gid = 0;
    const char *u = getenv("SUDO_UID"), *g = getenv("SUDO_GID");
    AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    int r = file_write_all(fd, b->tar.p, b->tar.n);
    if (r == 0 && u && g && num_u64(str_c(u), UINT32_MAX - 1, &uid) == 0 &&
        num_u64(str_c(g), UINT32_MAX - 1, &gid) == 0 &&
        fchown(fd, (uid_t)uid, (gid_t)gid) < 0) {
        r = -errno;
    }
    if (r < 0) {
        unlink(path);
        return fail(err, r, "WriteFailed", "%s: %s", path, strerror(-r));
    }
    return 0;
}

int cmd_support_bundle(struct spx *s, struct err *err)
{
    struct bundle b = {.s = s, .now_s = time_wall_ns() / NS_PER_S};
    const char *path =
        s->n_pos ? s->pos[0]
                 : arena_cstr(s->arena, arena_fmt(s->arena, "spinifex-support-%llu.tar",
                                                  (unsigned long long)b.now_s));
    int r = spx_need_root(s, err);
    r = r < 0 ? r : spx_config(s, err);
    if (r < 0) {
        return r;
    }
    buf_init(&b.tar, TAR_MAX);
    add_doctor(&b);
    add_host(&b);
    add_kernel(&b);
    add_processes(&b);
    const char *env = getenv("SPX_CONFIG");
    add_file(&b, "spinifex.toml", s->config_path ? s->config_path : env ? env : CONFIG_PATH);
    add_state(&b);
    add_logs(&b);
    bundle_end(&b.tar);
    r = buf_ok(&b.tar) ? store(&b, path, err)
                       : fail(err, -EFBIG, "TooLarge", "logs and state are more than %u MiB",
                              TAR_MAX >> 20);
    buf_done(&b.tar);
    if (r == 0) {
        printf("%s\nKeys, passwords and user data are taken out; read it before you send it.\n",
               path);
    }
    return r;
}
