#include "base/log.h"
#include "base/rand.h"
#include "net/rpc_int.h"
#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>

LOG_MODULE("net.rpc");

#define BACKOFF_MIN_NS  (20 * NS_PER_MS)
#define BACKOFF_MAX_NS  (1 * NS_PER_S)
/* Events put aside while a call-back waits for an answer. */
#define MAX_EVENT_BYTES (64u << 20)

/* One rpc_call() that waits; lives on its caller's stack. */
struct call {
    struct call *next;
    uint32_t id;
    pthread_cond_t done;
    bool is_done;
    int code;
    struct rpc_reply reply;
    struct err *err; /* the caller's, may be NULL */
};

/* An event that arrived and was not delivered yet. */
struct event {
    struct event *next;
    uint32_t stream;
    size_t n;
    char bytes[];
};

struct rpc_client {
    char *path;
    struct rpc_client_ops ops;
    void *ctx;
    pthread_t reader;
    bool has_reader;
    int wake_fd; /* ends the reader's poll */

    /* Of the reader's thread. */
    struct rpc_rx rx;
    struct event *first_event, **last_event;
    size_t event_bytes;
    bool was_connected;

    pthread_mutex_t mu;
    pthread_cond_t changed; /* fd, is_stopping, n_wanting, connect_errno */
    pthread_cond_t quiet;   /* n_callers, is_sending */
    int fd;                 /* GUARDED_BY(mu) as all below; -1 = not connected */
    bool is_stopping;
    bool is_sending;    /* one frame at a time goes out */
    unsigned n_callers; /* threads inside rpc_call() */
    unsigned n_wanting; /* those that wait for a connection */
    int connect_errno;  /* of the last attempt, 0 = none yet or it worked */
    uint64_t n_attempts;
    uint32_t next_id;
    struct call *calls;
};

static struct timespec to_timespec(uint64_t mono_ns)
{
    return (struct timespec){.tv_sec = (time_t)(mono_ns / NS_PER_S),
                             .tv_nsec = (long)(mono_ns % NS_PER_S)};
}

static void cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

/* Holds mu. 0 or -ETIMEDOUT. */
static int wait_until(struct rpc_client *c, pthread_cond_t *cond, uint64_t deadline_ns)
{
    struct timespec ts = to_timespec(deadline_ns);
    return -pthread_cond_timedwait(cond, &c->mu, &ts);
}

static bool is_reader(const struct rpc_client *c)
{
    return c->has_reader && pthread_equal(pthread_self(), c->reader);
}

/* ---- the connection ---- */

/* Holds mu; reader's thread. Requests that wait have failed: whether the far side did them,
 * nobody knows. */
static void disconnect(struct rpc_client *c)
{
    if (c->fd < 0) {
        return;
    }
    shutdown(c->fd,
             SHUT_RDWR); /* a sender that polls it wakes up; it is closed when no one sends */
    while (c->is_sending) {
        pthread_cond_wait(&c->quiet, &c->mu);
    }
    close(steal_fd(&c->fd));
    while (c->calls) {
        struct call *k = c->calls;
        c->calls = k->next;
        k->is_done = true;
        k->code = c->is_stopping ? fail(k->err, -ECANCELED, "Canceled",
                                        "%s: the client is being closed", c->path)
                                 : fail(k->err, -ECONNRESET, "Interrupted",
                                        "%s: the connection broke before the answer", c->path);
        pthread_cond_signal(&k->done);
    }
    rpc_rx_done(&c->rx);
    pthread_cond_broadcast(&c->changed);
}

/* Reader's thread. One attempt; returns 0 or -errno. */
static int try_connect(struct rpc_client *c)
{
    struct sockaddr_un addr;
    int r = rpc_addr(c->path, &addr, NULL);
    AUTO_FD fd = r < 0 ? -1 : socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (r == 0 && (fd < 0 || connect(fd, (const struct sockaddr *)&addr, sizeof(addr)) < 0)) {
        r = -errno;
    }
    pthread_mutex_lock(&c->mu);
    c->n_attempts++;
    c->connect_errno = -r;
    if (r == 0) {
        rpc_rx_init(&c->rx, false);
        c->fd = steal_fd(&fd);
    }
    pthread_cond_broadcast(&c->changed);
    pthread_mutex_unlock(&c->mu);
    return r;
}

/* ---- frames from the far side (reader's thread) ---- */

static int keep_event(struct rpc_client *c, const struct rpc_frame *f)
{
    if (!c->ops.on_event) {
        return 0;
    }
    if (c->event_bytes + f->size > MAX_EVENT_BYTES) {
        return -ENOBUFS;
    }
    struct event *e = malloc(sizeof(*e) + f->payload.n);
    if (!e) {
        abort();
    }
    *e = (struct event){.stream = f->id, .n = f->payload.n};
    if (e->n) {
        memcpy(e->bytes, f->payload.p, e->n);
    }
    *c->last_event = e;
    c->last_event = &e->next;
    c->event_bytes += f->size;
    return 0;
}

/* 0 or -EPROTO. Takes the descriptors. */
static int take_answer(struct rpc_client *c, const struct rpc_frame *f, const int *fds)
{
    int r = 0;
    pthread_mutex_lock(&c->mu);
    struct call **at = &c->calls;
    while (*at && (*at)->id != f->id) {
        at = &(*at)->next;
    }
    struct call *k = *at;
    if (k) {
        *at = k->next;
        k->is_done = true;
        if (f->kind == RPC_ERROR) {
            r = rpc_err_decode(f, &k->code, k->err);
            if (r < 0) {
                k->code =
                    fail(k->err, r, "BadAnswer", "%s: sent an error that is none", c->path);
            }
        } else {
            k->reply.payload = malloc(f->payload.n + 1);
            if (!k->reply.payload) {
                abort();
            }
            memcpy(k->reply.payload, f->payload.p, f->payload.n);
            k->reply.payload[f->payload.n] = '\0';
            k->reply.n = f->payload.n;
            k->reply.n_fds = f->n_fds;
            memcpy(k->reply.fds, fds, f->n_fds * sizeof(int));
        }
        pthread_cond_signal(&k->done);
    }
    pthread_mutex_unlock(&c->mu);
    if (!k) { /* its caller gave up */
        for (size_t i = 0; i < f->n_fds; i++) {
            close(fds[i]);
        }
    }
    return r;
}

/* Waits for bytes until the deadline and takes in the frames. 0 = go on, negative = the
 * connection is over. */
static int pump(struct rpc_client *c, int fd, uint64_t deadline_ns)
{
    uint64_t now = time_mono_ns();
    uint64_t left = deadline_ns > now ? deadline_ns - now : 0;
    struct pollfd pf[2] = {{fd, POLLIN, 0}, {c->wake_fd, POLLIN, 0}};
    struct timespec ts = to_timespec(left);
    int n = ppoll(pf, 2, deadline_ns == UINT64_MAX ? NULL : &ts, NULL);
    if (n < 0) {
        return errno == EINTR ? 0 : -errno;
    }
    if (pf[1].revents) {
        return -ECANCELED;
    }
    if (!pf[0].revents) {
        return 0;
    }
    int r = rpc_rx_read(&c->rx, fd);
    if (r == -EAGAIN) {
        return 0;
    }
    if (r <= 0) {
        return r == 0 ? -EPIPE : r;
    }
    struct rpc_frame f;
    int fds[RPC_MAX_FDS];
    while ((r = rpc_rx_next(&c->rx, &f, fds)) > 0) {
        r = f.kind == RPC_EVENT ? keep_event(c, &f) : take_answer(c, &f, fds);
        if (r < 0) {
            break;
        }
    }
    if (r < 0) {
        log_debug("rpc.bad_frame", KV_CSTR("path", c->path));
    }
    return r;
}

/* A call-back may call rpc_call(), which pumps and appends to the list: the order stays. */
static void deliver_events(struct rpc_client *c)
{
    while (c->first_event) {
        struct event *e = c->first_event;
        c->first_event = e->next;
        if (!c->first_event) {
            c->last_event = &c->first_event;
        }
        c->event_bytes -= MIN(c->event_bytes, RPC_HEAD_SIZE + e->n);
        c->ops.on_event(c->ctx, e->stream, str_n(e->bytes, e->n));
        free(e);
    }
}

static void drop_events(struct rpc_client *c)
{
    while (c->first_event) {
        struct event *e = c->first_event;
        c->first_event = e->next;
        free(e);
    }
    c->last_event = &c->first_event;
    c->event_bytes = 0;
}

/* ---- the reader ---- */

/* Waits until somebody wants a connection (or we keep one by ourselves); false = stop. */
static bool wait_wanted(struct rpc_client *c, uint64_t *backoff_ns)
{
    bool keeps = c->was_connected && (c->ops.on_event || c->ops.on_reconnect);
    pthread_mutex_lock(&c->mu);
    if (*backoff_ns >
        0) { /* jitter: many clients of one dead service must not come back in step */
        uint64_t pause = *backoff_ns / 2 + rand_u64() % (*backoff_ns / 2 + 1);
        uint64_t start = time_mono_ns();
        while (!c->is_stopping && time_mono_ns() < start + pause) {
            /* Somebody waits: at the pace of the first step. */
            uint64_t until = start + (c->n_wanting ? MIN(pause, BACKOFF_MIN_NS) : pause);
            if (time_mono_ns() >= until) {
                break;
            }
            int r = wait_until(c, &c->changed, until);
            (void)r;
        }
    }
    while (!c->is_stopping && !keeps && c->n_wanting == 0) {
        pthread_cond_wait(&c->changed, &c->mu);
    }
    bool goes_on = !c->is_stopping;
    pthread_mutex_unlock(&c->mu);
    *backoff_ns = MIN(MAX(*backoff_ns * 2, BACKOFF_MIN_NS), BACKOFF_MAX_NS);
    return goes_on;
}

static int client_fd(struct rpc_client *c)
{
    pthread_mutex_lock(&c->mu);
    int fd = c->fd;
    pthread_mutex_unlock(&c->mu);
    return fd;
}

static void *reader_main(void *arg)
{
    struct rpc_client *c = arg;
    uint64_t backoff_ns = 0;
    while (wait_wanted(c, &backoff_ns)) {
        if (try_connect(c) < 0) {
            continue;
        }
        if (c->was_connected && c->ops.on_reconnect) {
            c->ops.on_reconnect(c->ctx);
        }
        c->was_connected = true;
        int fd = -1;
        uint64_t up_ns = time_mono_ns();
        while ((fd = client_fd(c)) >=
               0) { /* a call inside a call-back may have met the end already */
            deliver_events(c);
            if (pump(c, fd, UINT64_MAX) < 0) {
                break;
            }
            deliver_events(c);
        }
        pthread_mutex_lock(&c->mu);
        disconnect(c);
        pthread_mutex_unlock(&c->mu);
        drop_events(c); /* of the lost connection: on_reconnect starts from a known point */
        /* A far side that accepts and hangs up at once must not be met at full speed. */
        backoff_ns =
            time_mono_ns() - up_ns > BACKOFF_MAX_NS ? 0 : MAX(backoff_ns, BACKOFF_MIN_NS);
    }
    pthread_mutex_lock(&c->mu);
    disconnect(c);
    pthread_mutex_unlock(&c->mu);
    return NULL;
}

struct rpc_client *rpc_client_new(const char *path, const struct rpc_client_ops *ops, void *ctx)
{
    struct rpc_client *c = calloc(1, sizeof(*c));
    if (!c) {
        abort();
    }
    c->path = strdup(path);
    c->fd = -1;
    c->wake_fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (!c->path || c->wake_fd < 0) {
        abort();
    }
    if (ops) {
        c->ops = *ops;
    }
    c->ctx = ctx;
    c->last_event = &c->first_event;
    c->next_id = 1;
    pthread_mutex_init(&c->mu, NULL);
    cond_init(&c->changed);
    cond_init(&c->quiet);
    sigset_t all, old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    pthread_mutex_lock(&c->mu); /* the reader looks at 'reader' only after we wrote it */
    c->has_reader = pthread_create(&c->reader, NULL, reader_main, c) == 0;
    pthread_mutex_unlock(&c->mu);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    if (!c->has_reader) {
        abort();
    }
    pthread_setname_np(c->reader, "rpc-reader");
    return c;
}

void rpc_client_free(struct rpc_client *c)
{
    if (!c) {
        return;
    }
    assert(!is_reader(c));
    pthread_mutex_lock(&c->mu);
    c->is_stopping = true;
    pthread_cond_broadcast(&c->changed);
    if (c->fd >= 0) {
        shutdown(c->fd, SHUT_RDWR);
    }
    pthread_mutex_unlock(&c->mu);
    uint64_t one = 1;
    ssize_t n = write(c->wake_fd, &one, sizeof(one));
    (void)n;
    pthread_join(c->reader, NULL);
    pthread_mutex_lock(&c->mu);
    while (c->n_callers > 0) {
        pthread_cond_wait(&c->quiet, &c->mu);
    }
    pthread_mutex_unlock(&c->mu);
    rpc_rx_done(&c->rx);
    drop_events(c);
    close(c->wake_fd);
    pthread_cond_destroy(&c->changed);
    pthread_cond_destroy(&c->quiet);
    pthread_mutex_destroy(&c->mu);
    free(c->path);
    free(c);
}

/* ---- calls ---- */

void rpc_reply_done(struct rpc_reply *r)
{
    free(r->payload);
    for (size_t i = 0; i < r->n_fds; i++) {
        if (r->fds[i] >= 0) {
            close(r->fds[i]);
        }
    }
    *r = (struct rpc_reply){0};
}

static int unavailable(const struct rpc_client *c, int code, struct err *err)
{
    int why = c->connect_errno;
    return fail(err, code, code == -EACCES ? "AccessDenied" : "Unavailable", "%s: %s", c->path,
                why ? strerror(why) : "not connected in time");
}

/* Holds mu. Waits for a connection. */
static int want_connection(struct rpc_client *c, uint64_t deadline_ns, struct err *err)
{
    if (is_reader(c)) { /* inside a call-back: nobody else would connect */
        return c->fd >= 0
                   ? 0
                   : fail(err, -ENOTCONN, "Unavailable", "%s: the connection broke", c->path);
    }
    uint64_t n_before = c->n_attempts;
    c->n_wanting++;
    pthread_cond_broadcast(&c->changed);
    int r = 0;
    while (c->fd < 0 && !c->is_stopping && r == 0) {
        bool is_final = c->n_attempts != n_before &&
                        (c->connect_errno == EACCES || c->connect_errno == ENAMETOOLONG);
        r = is_final ? -EACCES : wait_until(c, &c->changed, deadline_ns);
    }
    c->n_wanting--;
    if (c->is_stopping) {
        return fail(err, -ECANCELED, "Canceled", "%s: the client is being closed", c->path);
    }
    return c->fd >= 0 ? 0 : unavailable(c, r == -EACCES ? r : -ENOTCONN, err);
}

static void forget(struct rpc_client *c, const struct call *k)
{
    struct call **at = &c->calls;
    while (*at && *at != k) {
        at = &(*at)->next;
    }
    if (*at) {
        *at = k->next;
    }
}

/* Holds mu, but not while it waits for the socket. A frame that went out in part ends the
 * connection: nothing sensible could follow it. */
static int send_frame(struct rpc_client *c, struct call *k, struct rpc_msg *m,
                      uint64_t deadline_ns)
{
    while (c->is_sending && !k->is_done) {
        if (wait_until(c, &c->quiet, deadline_ns) < 0 && c->is_sending) {
            return -ETIMEDOUT;
        }
    }
    if (k->is_done) { /* the connection broke meanwhile */
        return 0;
    }
    c->is_sending = true;
    int fd = c->fd; /* disconnect() waits for is_sending before it closes */
    pthread_mutex_unlock(&c->mu);
    int r = 0;
    while ((r = rpc_msg_send(m, fd)) == 0) {
        uint64_t now = time_mono_ns();
        if (now >= deadline_ns) {
            r = -ETIMEDOUT;
            break;
        }
        struct timespec ts = to_timespec(deadline_ns - now);
        struct pollfd pf = {fd, POLLOUT, 0};
        if (ppoll(&pf, 1, &ts, NULL) < 0 && errno != EINTR) {
            r = -errno;
            break;
        }
    }
    pthread_mutex_lock(&c->mu);
    c->is_sending = false;
    pthread_cond_broadcast(&c->quiet);
    if (r < 0 && (r != -ETIMEDOUT || m->off > 0)) {
        shutdown(fd, SHUT_RDWR); /* the reader sees it and fails all calls, this one too */
        return 0;
    }
    return MIN(r, 0);
}

/* Holds mu. On the reader's thread the answer must be fetched, elsewhere the reader brings it.
 */
static int await_answer(struct rpc_client *c, struct call *k, uint64_t deadline_ns)
{
    if (!is_reader(c)) {
        while (!k->is_done) {
            if (wait_until(c, &k->done, deadline_ns) < 0) {
                return k->is_done ? 0 : -ETIMEDOUT;
            }
        }
        return 0;
    }
    while (!k->is_done) {
        int fd = c->fd;
        pthread_mutex_unlock(&c->mu);
        int r = pump(c, fd, deadline_ns);
        pthread_mutex_lock(&c->mu);
        if (r < 0) {
            disconnect(c);
        } else if (!k->is_done && time_mono_ns() >= deadline_ns) {
            return -ETIMEDOUT;
        }
    }
    return 0;
}

static int call_locked(struct rpc_client *c, struct rpc_msg *m, struct call *k,
                       uint64_t deadline_ns)
{
    int r = want_connection(c, deadline_ns, k->err);
    if (r < 0) {
        return r;
    }
    k->id = c->next_id++;
    for (int i = 0; i < 4; i++) {
        m->bytes[4 + i] = (char)(unsigned char)(k->id >> (8 * i));
    }
    k->next = c->calls;
    c->calls = k;
    r = send_frame(c, k, m, deadline_ns);
    if (r == 0) {
        r = await_answer(c, k, deadline_ns);
    }
    if (r < 0 && !k->is_done) {
        forget(c, k);
        return fail(k->err, -ETIMEDOUT, "Timeout", "%s: no answer in time", c->path);
    }
    return k->code;
}

int rpc_call(struct rpc_client *c, struct str method, struct str payload, const int *fds,
             size_t n_fds, uint64_t timeout_ns, struct rpc_reply *ret, struct err *err)
{
    uint64_t now = time_mono_ns();
    uint64_t deadline_ns = timeout_ns > INT64_MAX - now ? INT64_MAX : now + timeout_ns;
    assert(method.n > 0 && n_fds <= RPC_MAX_FDS);
    struct rpc_msg *m = rpc_msg_new(RPC_REQUEST, 0, method, payload);
    if (!m) {
        return fail(err, -E2BIG, "TooLarge", "a request of %zu bytes (at most %u fit)",
                    payload.n, RPC_MAX_SIZE);
    }
    int r = rpc_msg_add_fds(m, fds, n_fds);
    if (r < 0) {
        rpc_msg_free(m);
        return fail(err, r, "NoDescriptors", "passing %zu descriptors: %s", n_fds,
                    strerror(-r));
    }
    struct call k = {.err = err};
    cond_init(&k.done);
    pthread_mutex_lock(&c->mu);
    c->n_callers++;
    r = call_locked(c, m, &k, deadline_ns);
    c->n_callers--;
    pthread_cond_broadcast(&c->quiet);
    pthread_mutex_unlock(&c->mu);
    pthread_cond_destroy(&k.done);
    rpc_msg_free(m);
    if (r == 0 && ret) {
        *ret = k.reply;
    } else {
        rpc_reply_done(&k.reply);
    }
    return r;
}
