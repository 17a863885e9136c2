#include "net/service.h"
#include "base/buf.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include <assert.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/un.h>

LOG_MODULE("net.service");

#define NOTIFY_WAIT_MS 5000 /* for what the manager must not miss */
#define METRICS_MAX    (3u << 20)

static const char *const level_words[] = {"error", "warn", "info", "debug"};

static bool parse_level(struct str s, enum log_level *ret)
{
    for (size_t i = 0; i < ARRAY_LEN(level_words); i++) {
        if (str_eqc(s, level_words[i])) {
            *ret = (enum log_level)i;
            return true;
        }
    }
    return false;
}

/* ---- arguments ---- */

static void usage(FILE *f, const char *name, const struct service_arg *args, size_t n_args)
{
    fprintf(f,
            "Usage: %s [--config PATH] [--log-level error|warn|info|debug]\n"
            "  --config PATH      configuration (default $SPX_CONFIG or "
            "/etc/spinifex/spinifex.toml)\n"
            "  --log-level LEVEL  what is logged (default info)\n"
            "  --version          print the version\n",
            name);
    for (size_t i = 0; i < n_args; i++) {
        fprintf(f, "  %s %s\n", args[i].name, args[i].help);
    }
}

/* Where the value of argument 'name' goes, or NULL when there is no such argument. */
static const char **arg_place(const char *name, const char **config, const char **level,
                              const struct service_arg *args, size_t n_args)
{
    if (strcmp(name, "--config") == 0) {
        return config;
    }
    if (strcmp(name, "--log-level") == 0) {
        return level;
    }
    for (size_t i = 0; i < n_args; i++) {
        if (strcmp(name, args[i].name) == 0) {
            return args[i].value;
        }
    }
    return NULL;
}

/* 0 = go on; 1 = return *ret_exit. */
static int parse_args(struct service *s, int argc, char **argv, const struct service_arg *args,
                      size_t n_args, enum log_level *ret_level, int *ret_exit)
{
    const char *level = NULL;
    for (int i = 1; i < argc; i++) {
        if (strcmp(argv[i], "--help") == 0) {
            usage(stdout, s->name, args, n_args);
            *ret_exit = 0;
            return 1;
        }
        if (strcmp(argv[i], "--version") == 0) {
            printf("%s %s\n", s->name, SPINIFEX_VERSION);
            *ret_exit = 0;
            return 1;
        }
        const char **place = arg_place(argv[i], &s->config_path, &level, args, n_args);
        if (!place || i + 1 >= argc) {
            fprintf(stderr, place ? "%s: %s needs a value\n" : "%s: unknown argument %s\n",
                    s->name, argv[i]);
            usage(stderr, s->name, args, n_args);
            *ret_exit = 2;
            return 1;
        }
        *place = argv[++i];
    }
    if (level && !parse_level(str_c(level), ret_level)) {
        fprintf(stderr, "%s: --log-level is error, warn, info or debug, not %s\n", s->name,
                level);
        *ret_exit = 2;
        return 1;
    }
    return 0;
}

/* ---- life ---- */

/* 'wait_ms' 0: a manager that does not read loses the message; we do not hang with it. */
static void notify(const char *state, int wait_ms)
{
    const char *path = getenv("NOTIFY_SOCKET");
    struct sockaddr_un addr = {.sun_family = AF_UNIX};
    size_t n = path ? strlen(path) : 0;
    if (n < 2 || n >= sizeof(addr.sun_path) || (path[0] != '/' && path[0] != '@')) {
        return;
    }
    memcpy(addr.sun_path, path, n);
    if (path[0] == '@') { /* an abstract name */
        addr.sun_path[0] = '\0';
    }
    AUTO_FD fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct timeval limit = {.tv_sec = wait_ms / 1000, .tv_usec = wait_ms % 1000 * 1000};
    if (fd < 0 || setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit)) < 0) {
        return;
    }
    socklen_t addr_n = (socklen_t)(offsetof(struct sockaddr_un, sun_path) + n);
    if (sendto(fd, state, strlen(state), MSG_NOSIGNAL | (wait_ms ? 0 : MSG_DONTWAIT),
               (const struct sockaddr *)&addr, addr_n) < 0) {
        log_warn_rl("service.notify_failed", KV_CSTR("error", strerror(errno)));
    }
}

void service_notify(const char *state)
{
    notify(state, 0);
}

static void on_stop_signal(void *ctx)
{
    struct service *s = ctx;
    loop_stop(s->loop);
}

static void on_reload_signal(void *ctx)
{
    struct service *s = ctx;
    if (s->on_reload) {
        s->on_reload(s->reload_ctx);
    }
}

int service_start(struct service *s, const char *name, int argc, char **argv,
                  const struct service_arg *args, size_t n_args, int *ret_exit)
{
    *s = (struct service){.name = name, .start_ns = time_wall_ns()};
    enum log_level level = LOG_LEVEL_INFO;
    if (parse_args(s, argc, argv, args, n_args, &level, ret_exit) != 0) {
        return -EINVAL;
    }
    log_init(name, level);
    loop_block_signals();
    pthread_mutex_init(&s->mu, NULL);
    service_set_status(s, "starting", NULL);
    s->loop = loop_new();
    struct err err = ERR_INIT;
    int r = loop_signals(s->loop, on_stop_signal, on_reload_signal, s, &err);
    if (r < 0) {
        *ret_exit = service_failed(s, &err);
        service_done(s);
    }
    return r;
}

/* systemd restarts a service whose loop hangs, when its unit says WatchdogSec=. */
static void on_watchdog(void *ctx)
{
    struct service *s = ctx;
    service_notify("WATCHDOG=1");
    loop_timer_set(s->watchdog, loop_now_ns(s->loop) + s->watchdog_ns);
}

static void start_watchdog(struct service *s)
{
    const char *usec = getenv("WATCHDOG_USEC");
    const char *pid = getenv("WATCHDOG_PID");
    uint64_t n = 0;
    uint64_t for_pid = 0;
    if (!usec || num_u64(str_c(usec), 86400 * UINT64_C(1000000), &n) < 0 || n == 0) {
        return;
    }
    if (pid &&
        (num_u64(str_c(pid), INT32_MAX, &for_pid) < 0 || for_pid != (uint64_t)getpid())) {
        return; /* inherited: meant for our parent */
    }
    s->watchdog_ns = n * 1000 / 2;
    s->watchdog = loop_timer_new(s->loop, on_watchdog, s);
    loop_timer_set(s->watchdog, time_mono_ns());
}

int service_run(struct service *s)
{
    pthread_mutex_lock(&s->mu);
    if (strcmp(s->status, "starting") == 0) {
        snprintf(s->status, sizeof(s->status), "ok");
    }
    pthread_mutex_unlock(&s->mu);
    start_watchdog(s);
    log_info("service.ready", KV_CSTR("version", SPINIFEX_VERSION));
    notify("READY=1", NOTIFY_WAIT_MS);
    loop_run(s->loop);
    notify("STOPPING=1", NOTIFY_WAIT_MS);
    log_info("service.stopping", KV_CSTR("version", SPINIFEX_VERSION));
    /* The loop no longer takes signals; a second one must still end us. */
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, SIGINT);
    pthread_sigmask(SIG_UNBLOCK, &set, NULL);
    return 0;
}

void service_stop(struct service *s)
{
    loop_stop(s->loop);
}

void service_done(struct service *s)
{
    loop_timer_free(s->watchdog);
    loop_free(s->loop);
    s->loop = NULL;
    pthread_mutex_destroy(&s->mu);
}

int service_failed(const struct service *s, const struct err *err)
{
    if (err->hint) {
        log_error("service.failed", KV_ERR(err), KV_CSTR("hint", err->hint));
    } else {
        log_error("service.failed", KV_ERR(err));
    }
    return 1;
}

/* ---- giving up root ---- */

/* Raw calls: no libcap. All three sets at once; the inheritable set is empty. */
static int set_caps(uint64_t caps)
{
    struct __user_cap_header_struct h = {.version = _LINUX_CAPABILITY_VERSION_3};
    struct __user_cap_data_struct d[2] = {
        {.effective = (uint32_t)caps, .permitted = (uint32_t)caps},
        {.effective = (uint32_t)(caps >> 32), .permitted = (uint32_t)(caps >> 32)},
    };
    return syscall(SYS_capset, &h, d) < 0 ? -errno : 0;
}

int service_drop_user(uid_t uid, gid_t gid, const gid_t *groups, size_t n_groups,
                      uint64_t keep_caps, struct err *err)
{
    if (uid == 0) {
        return 0;
    }
    if (keep_caps && prctl(PR_SET_KEEPCAPS, 1, 0, 0, 0) < 0) {
        return fail(err, -errno, "DropUser", "keep capabilities: %m");
    }
    if (setgroups(n_groups, groups) < 0) {
        return fail(err, -errno, "DropUser", "setgroups: %m");
    }
    if (setresgid(gid, gid, gid) < 0) {
        return fail(err, -errno, "DropUser", "setresgid(%u): %m", (unsigned)gid);
    }
    if (setresuid(uid, uid, uid) < 0) {
        return fail(err, -errno, "DropUser", "setresuid(%u): %m", (unsigned)uid);
    }
    int r = set_caps(keep_caps);
    if (r < 0) {
        return fail(err, r, "DropUser", "capset: %s", strerror(-r));
    }
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
        return fail(err, -errno, "DropUser", "no new privileges: %m");
    }
    bool may_setuid = (keep_caps & UINT64_C(1) << CAP_SETUID) != 0;
    if (!may_setuid && setresuid(0, 0, 0) == 0) {
        abort(); /* the kernel gave root back: nothing safe can go on */
    }
    return 0;
}

/* ---- admin methods ---- */

void service_set_status(struct service *s, const char *status, const char *detail)
{
    char line[sizeof(s->status) + sizeof(s->detail) + 16];
    pthread_mutex_lock(&s->mu);
    bool is_same =
        strcmp(s->status, status) == 0 && strcmp(s->detail, detail ? detail : "") == 0;
    snprintf(s->status, sizeof(s->status), "%s", status);
    snprintf(s->detail, sizeof(s->detail), "%s", detail ? detail : "");
    snprintf(line, sizeof(line), "STATUS=%s%s%s", s->status, s->detail[0] ? ": " : "",
             s->detail);
    pthread_mutex_unlock(&s->mu);
    if (!is_same) { /* what "systemctl status" shows */
        service_notify(line);
    }
}

static void answer_health(struct service *s, struct rpc_req *req)
{
    AUTO_BUF b;
    buf_init(&b, 4096);
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_cstr(&w, "service", s->name);
    jw_cstr(&w, "version", SPINIFEX_VERSION);
    jw_u64(&w, "pid", (uint64_t)getpid());
    pthread_mutex_lock(&s->mu);
    jw_cstr(&w, "status", s->status);
    jw_cstr(&w, "detail", s->detail);
    pthread_mutex_unlock(&s->mu);
    jw_obj_end(&w);
    assert(buf_ok(&b));
    rpc_reply(req, buf_str(&b), NULL, 0);
}

/* Bytes of memory that are in use; 0 when the kernel does not say. */
static uint64_t resident(void)
{
    char text[128];
    AUTO_FD fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof(text));
    struct str rest = str_n(text, n > 0 ? (size_t)n : 0), pages = STR_NONE;
    uint64_t v = 0;
    (void)str_next(&rest, ' ', &pages); /* the size of the address space */
    return str_next(&rest, ' ', &pages) && num_u64(pages, UINT64_MAX >> 12, &v) == 0
               ? v * (uint64_t)sysconf(_SC_PAGESIZE)
               : 0;
}

static uint64_t count_fds(void)
{
    uint64_t n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n > 3 ? n - 3 : 0; /* not ".", ".." and the folder itself */
}

static void answer_metrics(struct service *s, struct rpc_req *req)
{
    struct timespec cpu = {0};
    struct err err = ERR_INIT;
    struct jw w;
    AUTO_BUF b;
    AUTO_BUF text;
    buf_init(&text, METRICS_MAX);
    buf_init(&b, 2 * METRICS_MAX);
    if (s->on_metrics) {
        s->on_metrics(s->metrics_ctx, &text);
    }
    (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &cpu);
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_u64(&w, "start_ns", s->start_ns);
    jw_u64(&w, "cpu_ns", (uint64_t)cpu.tv_sec * NS_PER_S + (uint64_t)cpu.tv_nsec);
    jw_u64(&w, "resident", resident());
    jw_u64(&w, "fds", count_fds());
    jw_str(&w, "text", buf_ok(&text) ? buf_str(&text) : STR(""));
    jw_obj_end(&w);
    if (!buf_ok(&text) || !buf_ok(&b)) {
        (void)fail(&err, -E2BIG, "TooLarge", "%s has more counters than fit", s->name);
        rpc_reply_err(req, &err);
        return;
    }
    rpc_reply(req, buf_str(&b), NULL, 0);
}

static void answer_log_level(struct service *s, struct str payload, struct rpc_req *req)
{
    struct err err = ERR_INIT;
    struct json *j = NULL;
    enum log_level level = LOG_LEVEL_INFO;
    uid_t uid = rpc_req_peer(req)->uid;
    if (uid != 0 && uid != geteuid()) {
        fail(&err, -EPERM, "AccessDenied", "uid %u may not change the log level of %s",
             (unsigned)uid, s->name);
    } else if (json_parse(payload, &j, &err) == 0 &&
               !parse_level(json_get_str(j, "level"), &level)) {
        fail(&err, -EINVAL, "BadRequest", "level is error, warn, info or debug");
    }
    json_free(j);
    if (err.code) {
        rpc_reply_err(req, &err);
        return;
    }
    log_set_level(level);
    log_info("service.log_level", KV_CSTR("level", level_words[level]), KV_U64("uid", uid));
    AUTO_BUF b;
    buf_init(&b, 256);
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_cstr(&w, "level", level_words[level]);
    jw_obj_end(&w);
    rpc_reply(req, buf_str(&b), NULL, 0);
}

bool service_admin_handle(struct service *s, struct str method, struct str payload,
                          struct rpc_req *req)
{
    if (str_eqc(method, "health")) {
        answer_health(s, req);
        return true;
    }
    if (str_eqc(method, "metrics")) {
        answer_metrics(s, req);
        return true;
    }
    if (str_eqc(method, "log.level")) {
        answer_log_level(s, payload, req);
        return true;
    }
    return false;
}
