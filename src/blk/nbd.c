#include "blk/nbd.h"
#include "base/log.h"
#include "blk/nbd_int.h"
#include <assert.h>
#include <errno.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

LOG_MODULE("blk.nbd");

#define STACK_SIZE (512u << 10)

struct nbd {
    struct nbd_opts o;
    char name[BLK_SNAP_ID];
    struct loop_fd *listen;
    struct nbd_conn *conns;
    atomic_uint n_conns; /* changed by the loop only */
    unsigned used;       /* bit per number of a connection */
    void (*on_stop)(void *ctx);
    void *stop_ctx;
};

static void free_conn(struct nbd_conn *c)
{
    blk_queue_free(c->q);
    close(c->fd);
    free(c->in);
    free(c);
}

/* Joins its thread. */
static void end_conn(struct nbd_conn *c)
{
    struct nbd *n = c->n;
    struct nbd_conn **p = &n->conns;
    pthread_join(c->thread, NULL);
    while (*p != c) {
        p = &(*p)->next;
    }
    *p = c->next;
    n->n_conns--;
    n->used &= ~(1u << c->idx);
}

static void on_conn_end(void *ctx)
{
    struct nbd_conn *c = ctx;
    struct nbd *n = c->n;
    if (!n) { /* nbd_free() was faster */
        free_conn(c);
        return;
    }
    end_conn(c);
    free_conn(c);
    if (n->o.on_change) {
        n->o.on_change(n->o.ctx);
    }
    if (n->n_conns == 0 && n->on_stop) {
        void (*fn)(void *ctx) = n->on_stop;
        n->on_stop = NULL;
        fn(n->stop_ctx);
    }
}

void nbd_conn_ended(struct nbd_conn *c)
{
    loop_post(c->loop, on_conn_end, c);
}

static bool is_allowed(const struct nbd *n, int fd)
{
    struct ucred u = {.uid = (uid_t)-1};
    socklen_t size = sizeof(u);
    return n->o.peer_uid == (uid_t)-1 ||
           (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &u, &size) == 0 &&
            (u.uid == 0 || u.uid == n->o.peer_uid));
}

static int start(struct nbd *n, struct nbd_conn *c)
{
    pthread_attr_t a;
    pthread_attr_init(&a);
    pthread_attr_setstacksize(&a, STACK_SIZE);
    int rc = -pthread_create(&c->thread, &a, nbd_conn_thread, c);
    pthread_attr_destroy(&a);
    return rc;
}

static void on_accept(void *ctx, uint32_t ready)
{
    struct nbd *n = ctx;
    AUTO_FD fd = accept4(n->o.listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (!is_allowed(n, fd) || n->n_conns == NBD_MAX_CONNS) {
        log_warn_rl("nbd.refused", KV_CSTR("volume", n->name), KV_U64("open", n->n_conns));
        return;
    }
    struct err err = ERR_INIT;
    struct nbd_conn *c = NULL;
    if (nbd_conn_new(&c, &err) != 0) {
        log_warn_rl("nbd.refused", KV_CSTR("volume", n->name), KV_ERR(&err));
        return;
    }
    c->n = n;
    c->loop = n->o.loop;
    c->disk = n->o.disk;
    c->fd = steal_fd(&fd);
    c->stall_ns = n->o.stall_ns ? n->o.stall_ns : NBD_STALL_NS;
    c->x = (struct nbd_export){.name = n->name,
                               .size = disk_size(n->o.disk),
                               .is_read_only = n->o.is_read_only,
                               .has_dirty = disk_cow(n->o.disk) != NULL};
    while (n->used & (1u << c->idx)) {
        c->idx++;
    }
    if (start(n, c) != 0) {
        free_conn(c);
        return;
    }
    n->used |= 1u << c->idx;
    n->n_conns++;
    c->next = n->conns;
    n->conns = c;
    if (n->o.on_change) {
        n->o.on_change(n->o.ctx);
    }
}

int nbd_new(const struct nbd_opts *o, struct nbd **ret, struct err *err)
{
    struct nbd *n = calloc(1, sizeof(*n));
    size_t len = strlen(o->name);
    if (!n || len >= sizeof(n->name)) {
        free(n);
        return fail(err, n ? -EINVAL : -ENOMEM, n ? "BadName" : "OutOfMemory",
                    "no NBD server for %s", o->name);
    }
    n->o = *o;
    memcpy(n->name, o->name, len);
    int rc = loop_fd_add(o->loop, o->listen_fd, EPOLLIN, on_accept, n, &n->listen);
    if (rc != 0) {
        free(n);
        return fail(err, rc, "NoSocket", "this descriptor is no listening socket");
    }
    *ret = n;
    return 0;
}

static void stop_all(struct nbd *n)
{
    loop_fd_del(n->listen);
    n->listen = NULL;
    for (struct nbd_conn *c = n->conns; c; c = c->next) {
        if (!c->is_stop_sent) {
            c->is_stop_sent = true;
            blk_queue_post(c->q, &c->stop_msg);
        }
    }
}

void nbd_stop(struct nbd *n, void (*fn)(void *ctx), void *ctx)
{
    stop_all(n);
    if (n->n_conns == 0) {
        fn(ctx);
        return;
    }
    n->on_stop = fn;
    n->stop_ctx = ctx;
}

void nbd_free(struct nbd *n)
{
    if (!n) {
        return;
    }
    stop_all(n);
    while (n->conns) {
        struct nbd_conn *c = n->conns;
        end_conn(c);
        c->n = NULL; /* its message to the loop is still under way, and frees it */
    }
    free(n);
}

unsigned nbd_n_conns(const struct nbd *n)
{
    return n->n_conns;
}
