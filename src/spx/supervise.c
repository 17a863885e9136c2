#include "spx/supervise.h"
#include "base/log.h"
#include "base/time.h"
#include "codec/json.h"
#include "loop/child.h"
#include "loop/loop.h"
#include "loop/pool.h"
#include "net/rpc.h"
#include "spx/logfile.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/wait.h>

LOG_MODULE("spx.supervise");

#define MAX_SERVICES     16u
#define LOG_MAX          (16u << 20)
#define LOG_OLD          3u
#define TAIL_SIZE        2000u
#define HEALTH_EVERY_NS  (100 * NS_PER_MS)
#define HEALTH_LIMIT_NS  NS_PER_S
#define BACKOFF_FIRST_NS (500 * NS_PER_MS)
#define BACKOFF_MAX_NS   (30 * NS_PER_S)
#define STABLE_NS \
    (60 * NS_PER_S) /* up for so long: the next death starts at the first back-off */
/* Of a service that never answered. With the back-offs this is a quarter of a minute: the one of
 * before, cut off from its supervisor, may still be serving its last requests on the same port. */
#define FIRST_DEATHS_MAX 6u
#define STOP_LIMIT_NS    (40 * NS_PER_S)
#define MAX_FILES        65536u /* as in the units of systemd: a shell's 1024 are few connections */

/*              spawn              health answered
 *   DOWN ----------------> STARTING ------------> READY
 *    ^  \__ back-off timer     | dies, too slow     | dies
 *    +-------------------------+--------------------+
 */
enum state { DOWN, STARTING, READY };

struct sup;
struct svc {
    struct sup *sup;
    struct supervise_service s;
    enum state state;
    pid_t pid;
    struct loop_child *watch;
    struct loop_timer *timer; /* DOWN: start again; STARTING: ask for health */
    int log_fd;               /* read end of its standard error */
    struct loop_fd *log_watch;
    struct logfile *log;
    char tail[TAIL_SIZE]; /* of what it said, for the message when it does not start */
    size_t n_tail;
    struct rpc_client *client;
    bool is_asking, is_healthy; /* a question is under way; its answer */
    uint64_t started_ns, backoff_ns;
    unsigned n_deaths;
    bool was_ready;
};

struct sup {
    const struct supervise_opts *o;
    struct loop *loop;
    struct pool *pool;
    struct svc v[MAX_SERVICES];
    size_t n, next; /* 'next' is being started; n = all answered once */
    bool is_stopping;
    uint64_t max_files;
    size_t stopping; /* index + 1 of the one that is being stopped */
    struct loop_timer *kill_timer;
    struct err err; /* why the first start failed */
};

static void PRINTF_LIKE(3, 4) say(struct sup *sup, bool is_last, const char *fmt, ...)
{
    char line[400];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(line, sizeof(line), fmt, ap);
    va_end(ap);
    sup->o->say(sup->o->ctx, line, is_last);
}

static void stop_next(struct sup *sup);
static void start(struct svc *s);

static void begin_stop(struct sup *sup)
{
    if (!sup->is_stopping) {
        sup->is_stopping = true;
        sup->stopping = sup->n;
        stop_next(sup);
    }
}

/* Logs ------------------------------------------------------------------------------------ */

static void keep_tail(struct svc *s, struct str bytes)
{
    bytes = str_skip(bytes, bytes.n - MIN(bytes.n, sizeof(s->tail)));
    size_t keep = MIN(s->n_tail, sizeof(s->tail) - bytes.n);
    memmove(s->tail, s->tail + s->n_tail - keep, keep);
    memcpy(s->tail + keep, bytes.p, bytes.n);
    s->n_tail = keep + bytes.n;
}

static void close_log_pipe(struct svc *s)
{
    loop_fd_del(steal(&s->log_watch));
    if (s->log_fd >= 0) {
        close(s->log_fd);
        s->log_fd = -1;
    }
}

/* False when there is nothing more for now. */
static bool read_log(struct svc *s)
{
    char bytes[16384];
    ssize_t n = read(s->log_fd, bytes, sizeof(bytes));
    if (n > 0) {
        logfile_add(s->log, str_n(bytes, (size_t)n));
        keep_tail(s, str_n(bytes, (size_t)n));
    } else if (n == 0 || (errno != EAGAIN && errno != EINTR)) {
        close_log_pipe(s);
    }
    return n > 0;
}

static void on_log(void *ctx, uint32_t ready)
{
    (void)read_log(ctx);
}

/* Health ---------------------------------------------------------------------------------- */

static void ask(void *ctx) /* on a thread of the pool */
{
    struct svc *s = ctx;
    struct rpc_reply reply = {0};
    AUTO(json_freep) struct json *j = NULL;
    int r =
        rpc_call(s->client, STR("health"), STR("{}"), NULL, 0, HEALTH_LIMIT_NS, &reply, NULL);
    if (r < 0) {
        return;
    }
    if (json_parse(str_n(reply.payload, reply.n), &j, NULL) == 0) {
        struct str status = json_get_str(j, "status");
        s->is_healthy = str_is_set(status) && !str_eqc(status, "starting");
    }
    rpc_reply_done(&reply);
}

static void give_up(struct svc *s, const char *why)
{
    struct sup *sup = s->sup;
    struct str tail = str_trim(str_n(s->tail, s->n_tail));
    tail = str_skip(tail, tail.n - MIN(tail.n, (size_t)400));
    fail(&sup->err, -ECHILD, "StartFailed", "%s %s; its log (%s/spx-%s.log) ends: %.*s",
         s->s.name, why, sup->o->log_dir, s->s.name, STR_ARG(tail.n ? tail : STR("(empty)")));
    begin_stop(sup);
}

static void start_next(struct sup *sup)
{
    if (sup->next < sup->n) {
        start(&sup->v[sup->next]);
        return;
    }
    say(sup, true, "every service answers");
}

static void on_answer(void *ctx) /* back on the loop */
{
    struct svc *s = ctx;
    struct sup *sup = s->sup;
    uint64_t limit = s->s.start_timeout_ns      ? s->s.start_timeout_ns
                     : sup->o->start_timeout_ns ? sup->o->start_timeout_ns
                                                : 60 * NS_PER_S;
    s->is_asking = false;
    if (s->state != STARTING || sup->is_stopping) {
        return;
    }
    uint64_t took = time_mono_ns() - s->started_ns;
    if (!s->is_healthy) {
        if (took < limit) {
            loop_timer_set(s->timer, loop_now_ns(sup->loop) + HEALTH_EVERY_NS);
        } else if (!s->was_ready) {
            give_up(s, "does not answer");
        } else { /* it answered once, and is given up on at every restart that takes too long */
            log_warn("service.silent", KV_CSTR("name", s->s.name));
            kill(s->pid, SIGKILL);
        }
        return;
    }
    s->state = READY;
    log_info("service.ready", KV_CSTR("name", s->s.name), KV_U64("ms", took / NS_PER_MS));
    if (!s->was_ready) {
        s->was_ready = true;
        say(sup, false, "%-10s ready  %llu.%02llu s", s->s.name,
            (unsigned long long)(took / NS_PER_S),
            (unsigned long long)(took % NS_PER_S / (10 * NS_PER_MS)));
        sup->next++;
        start_next(sup);
    }
}

static void on_timer(void *ctx)
{
    struct svc *s = ctx;
    if (s->sup->is_stopping) {
        return;
    }
    if (s->state == DOWN) {
        start(s);
    } else if (s->state == STARTING && !s->is_asking) {
        s->is_healthy = false;
        s->is_asking = pool_submit(s->sup->pool, ask, s->sup->loop, on_answer, s) == 0;
        if (!s->is_asking) {
            loop_timer_set(s->timer, loop_now_ns(s->sup->loop) + HEALTH_EVERY_NS);
        }
    }
}

/* Starting and dying ----------------------------------------------------------------------- */

static void on_death(void *ctx, pid_t pid, int status)
{
    struct svc *s = ctx;
    struct sup *sup = s->sup;
    uint64_t now = time_mono_ns();
    s->watch = NULL;
    s->pid = 0;
    while (s->log_watch && read_log(s)) { /* its last words */
    }
    s->state = DOWN;
    s->n_deaths++;
    if (sup->is_stopping) {
        if (sup->stopping > 0 && s == &sup->v[sup->stopping - 1]) {
            sup->stopping--;
            stop_next(sup);
        }
        return;
    }
    log_warn("service.died", KV_CSTR("name", s->s.name), KV_I64("pid", pid),
             KV_I64("exit", WIFEXITED(status) ? WEXITSTATUS(status) : -1),
             KV_I64("signal", WIFSIGNALED(status) ? WTERMSIG(status) : 0));
    unsigned max = sup->o->n_first_deaths ? sup->o->n_first_deaths : FIRST_DEATHS_MAX;
    if (!s->was_ready && s->n_deaths >= max) {
        give_up(s, "dies at its start");
        return;
    }
    bool is_stable = now - s->started_ns > STABLE_NS;
    s->backoff_ns =
        is_stable || !s->backoff_ns ? BACKOFF_FIRST_NS : MIN(s->backoff_ns * 2, BACKOFF_MAX_NS);
    loop_timer_set(s->timer, now + s->backoff_ns);
}

static int spawn(struct svc *s, struct err *err)
{
    const struct supervise_opts *o = s->sup->o;
    const char *const argv[] = {
        s->s.exe, "--config", o->cfg->path, "--log-level", o->log_level ? o->log_level : "info",
        NULL};
    int pipe_fds[2];
    if (pipe2(pipe_fds, O_CLOEXEC) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    uid_t uid = (uid_t)(o->cfg->uid_base + (unsigned)s->s.uid_offset);
    gid_t group = (gid_t)o->cfg->uid_base; /* may make sockets in run_dir */
    struct child_opts c = {
        .argv = argv,
        .out_fd = pipe_fds[1],
        .err_fd = pipe_fds[1],
        .has_new_session = true,
        .has_no_core = true,
        .max_files = s->sup->max_files,
        .may_lock_memory = strcmp(s->s.name, "viperblock") == 0,
        /* Services survive any end; one that ends slowly would hold its port when we come back. */
        .death_signal = SIGKILL,
    };
    if (o->cfg->uid_base && s->s.uid_offset) {
        c.is_user_set = true;
        c.uid = uid;
        c.gid = uid;
        c.groups = &group;
        c.n_groups = 1;
        c.has_no_new_privs = true;
    }
    int r = child_spawn(&c, &s->pid, err);
    close(pipe_fds[1]);
    if (r < 0) {
        close(pipe_fds[0]);
        return r;
    }
    close_log_pipe(s); /* of the one before */
    s->log_fd = pipe_fds[0];
    fcntl(s->log_fd, F_SETFL, O_NONBLOCK);
    r = loop_fd_add(s->sup->loop, s->log_fd, EPOLLIN, on_log, s, &s->log_watch);
    if (r == 0) {
        r = loop_child_watch(s->sup->loop, s->pid, on_death, s, &s->watch, err);
    }
    if (r < 0) { /* nobody would see it die */
        kill(s->pid, SIGKILL);
        waitpid(s->pid, NULL, 0);
        s->pid = 0;
        return fail(err, r, "SpawnFailed", "watching the service failed");
    }
    return 0;
}

static void start(struct svc *s)
{
    struct err err = ERR_INIT;
    s->started_ns = time_mono_ns();
    s->n_tail = 0;
    int r = spawn(s, &err);
    if (r == 0) {
        s->state = STARTING;
        log_info("service.started", KV_CSTR("name", s->s.name), KV_I64("pid", s->pid));
        loop_timer_set(s->timer, loop_now_ns(s->sup->loop) + HEALTH_EVERY_NS / 4);
        return;
    }
    log_error("service.start_failed", KV_CSTR("name", s->s.name), KV_ERR(&err));
    if (!s->was_ready) {
        keep_tail(s, str_c(err.msg));
        give_up(s, "cannot be started");
        return;
    }
    s->backoff_ns = s->backoff_ns ? MIN(s->backoff_ns * 2, BACKOFF_MAX_NS) : BACKOFF_FIRST_NS;
    loop_timer_set(s->timer, loop_now_ns(s->sup->loop) + s->backoff_ns);
}

/* Stopping --------------------------------------------------------------------------------- */

static void on_kill_timer(void *ctx)
{
    struct sup *sup = ctx;
    if (sup->stopping > 0 && sup->v[sup->stopping - 1].pid) {
        log_warn("service.killed", KV_CSTR("name", sup->v[sup->stopping - 1].s.name));
        kill(sup->v[sup->stopping - 1].pid, SIGKILL);
    }
}

/* Ends the last one that runs; on_death() comes back here. */
static void stop_next(struct sup *sup)
{
    while (sup->stopping > 0 && sup->v[sup->stopping - 1].pid == 0) {
        sup->stopping--;
    }
    if (sup->stopping == 0) {
        loop_stop(sup->loop);
        return;
    }
    struct svc *s = &sup->v[sup->stopping - 1];
    log_info("service.stopping", KV_CSTR("name", s->s.name));
    kill(s->pid, SIGTERM);
    loop_timer_set(sup->kill_timer, time_mono_ns() + STOP_LIMIT_NS);
}

static void on_signal(void *ctx)
{
    begin_stop(ctx);
}

static int init_service(struct sup *sup, struct svc *s, const struct supervise_service *from,
                        struct err *err)
{
    char path[512];
    *s = (struct svc){.sup = sup, .s = *from, .log_fd = -1};
    int n = snprintf(path, sizeof(path), "%s/spx-%s.log", sup->o->log_dir, from->name);
    if (n < 0 || (size_t)n >= sizeof(path)) {
        return fail(err, -ENAMETOOLONG, "OpenFailed", "%s: the name is too long",
                    sup->o->log_dir);
    }
    s->timer = loop_timer_new(sup->loop, on_timer, s);
    s->client = rpc_client_new(from->socket, NULL, NULL);
    return logfile_new(path, LOG_MAX, LOG_OLD, &s->log, err);
}

static void done_service(struct svc *s)
{
    loop_child_unwatch(s->watch);
    close_log_pipe(s);
    loop_timer_free(s->timer);
    if (s->client) {
        rpc_client_free(s->client);
    }
    logfile_free(s->log);
}

/* As many as wanted, or as may be: who is not root (or in a container) cannot raise the limit. */
static uint64_t file_limit(void)
{
    struct rlimit lim;
    if (getrlimit(RLIMIT_NOFILE, &lim) < 0) {
        return 0;
    }
    if (lim.rlim_max < MAX_FILES) {
        const struct rlimit more = {lim.rlim_cur, MAX_FILES};
        if (setrlimit(RLIMIT_NOFILE, &more) == 0) {
            lim = more;
        }
    }
    return MIN((uint64_t)lim.rlim_max, (uint64_t)MAX_FILES);
}

int supervise_run(const struct supervise_opts *o, struct err *err)
{
    struct sup sup = {.o = o, .loop = loop_new(), .max_files = file_limit()};
    int r = o->n_services > MAX_SERVICES ? fail(err, -E2BIG, "StartFailed", "too many services")
                                         : loop_signals(sup.loop, on_signal, NULL, &sup, err);
    sup.pool = pool_new("health", 2, MAX_SERVICES);
    sup.kill_timer = loop_timer_new(sup.loop, on_kill_timer, &sup);
    for (size_t i = 0; r == 0 && i < o->n_services; i++) {
        sup.n++;
        r = init_service(&sup, &sup.v[i], &o->services[i], err);
    }
    if (r == 0) {
        start_next(&sup);
        loop_run(sup.loop);
        r = sup.err.code;
        if (r < 0) {
            fail(err, r, sup.err.name, "%s", sup.err.msg);
        }
    }
    pool_free(sup.pool); /* before the clients that it asks with */
    for (size_t i = 0; i < sup.n; i++) {
        done_service(&sup.v[i]);
    }
    loop_timer_free(sup.kill_timer);
    loop_free(sup.loop);
    return r;
}
