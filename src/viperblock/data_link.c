#include "base/log.h"
#include "base/time.h"
#include "viperblock/data.h"
#include <errno.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>

LOG_MODULE("data.link");

#define MAX_IN_A_ROW 64 /* messages, before others have their turn */

union ctl_msg *data_msg_new(void)
{
    void *m = mmap(NULL, sizeof(union ctl_msg), PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (m == MAP_FAILED) {
        abort();
    }
    /* A limit that is too small is no reason not to serve; the core dump is off anyway. */
    (void)!mlock(m, sizeof(union ctl_msg));
    (void)!madvise(m, sizeof(union ctl_msg), MADV_DONTDUMP);
    return m;
}

void data_msg_free(union ctl_msg *m)
{
    if (m) {
        secret_wipe(m, sizeof(*m));
        munmap(m, sizeof(*m));
    }
}

static void close_fds(struct data_req *r)
{
    for (size_t i = 0; i < r->n_fds; i++) {
        if (r->fds[i] >= 0) {
            close(r->fds[i]);
        }
    }
    r->n_fds = 0;
}

void data_req_free(struct data_req *r)
{
    close_fds(r);
    data_msg_free(r->m);
    free(r);
}

static void drop_results(struct data *p)
{
    while (p->results) {
        struct data_req *r = p->results;
        p->results = r->next;
        data_req_free(r);
    }
    p->results_tail = &p->results;
    p->n_results = 0;
}

static void unlink_manager(struct data *p)
{
    if (p->fd < 0) {
        return;
    }
    loop_fd_del(p->link);
    p->link = NULL;
    close(p->fd);
    p->fd = -1;
    drop_results(p);
}

static void receive(struct data *p)
{
    for (int i = 0; i < MAX_IN_A_ROW && p->fd >= 0 && p->n_results < DATA_MAX_RESULTS; i++) {
        int fds[CTL_MAX_FDS];
        size_t n_fds = 0;
        int rc = ctl_recv(p->fd, false, p->in, fds, &n_fds);
        if (rc == -EAGAIN) {
            return;
        }
        if (rc != 0) {
            log_info(rc == -EPIPE ? "data.manager_gone" : "data.manager_refused",
                     KV_CSTR("name", p->name));
            unlink_manager(p);
            return;
        }
        data_handle(p, fds, n_fds);
    }
}

static void on_link(void *ctx, uint32_t ready)
{
    struct data *p = ctx;
    receive(p);
    data_pump(p);
}

/* Only the service's own user, and root, are managers. */
static bool is_allowed(int fd)
{
    struct ucred c = {.uid = (uid_t)-1};
    socklen_t n = sizeof(c);
    return getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &c, &n) == 0 &&
           (c.uid == 0 || c.uid == geteuid());
}

static void on_connect(void *ctx, uint32_t ready)
{
    struct data *p = ctx;
    AUTO_FD fd = accept4(p->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    if (!is_allowed(fd)) {
        log_warn_rl("data.stranger", KV_CSTR("name", p->name));
        return;
    }
    unlink_manager(p);
    struct err err = ERR_INIT;
    int rc = data_slots_renew(p, &err);
    rc = rc != 0 ? rc : loop_fd_add(p->loop, fd, EPOLLIN, on_link, p, &p->link);
    if (rc != 0) {
        log_warn_rl("data.manager_failed", KV_CSTR("name", p->name), KV_ERR(&err));
        return;
    }
    p->fd = steal_fd(&fd);
    p->conn++;
    p->is_welcome_due = true;
    memset(p->done_sent, 0, sizeof(p->done_sent));
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        if (p->disks[i]) {
            p->disks[i]->is_state_due = true;
        }
    }
    log_info("data.manager", KV_CSTR("name", p->name));
    data_pump(p);
}

int data_link_listen(struct data *p, struct err *err)
{
    p->fd = -1;
    p->results_tail = &p->results;
    p->in = data_msg_new();
    int rc = loop_fd_add(p->loop, p->listen_fd, EPOLLIN, on_connect, p, &p->listen);
    return rc == 0 ? 0 : fail(err, rc, "NoSocket", "descriptor 3 is no listening socket");
}

void data_link_done(struct data *p)
{
    unlink_manager(p);
    loop_fd_del(p->listen);
    data_msg_free(p->in);
    data_slots_free(p);
}

void data_answer(struct data_req *r)
{
    struct data *p = r->p;
    if (r->conn == 0 || r->conn != p->conn || p->fd < 0) {
        data_req_free(r);
        return;
    }
    if (r->m->h.op != CTL_GIVE || r->rc < 0) {
        close_fds(r);
    }
    r->next = NULL;
    *p->results_tail = r;
    p->results_tail = &r->next;
    p->n_results++;
    data_pump(p);
}

/* ---- sending ---- */

static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = from ? strnlen(from, size - 1) : 0;
    for (size_t i = 0; i < n; i++) {
        to[i] = from[i] >= 0x20 && from[i] <= 0x7e ? from[i] : '?';
    }
}

static int send_welcome(struct data *p)
{
    union ctl_msg m = {.welcome = {.h = {.op = CTL_WELCOME}, .pid = (uint32_t)getpid()}};
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        m.welcome.n_disks += p->disks[i] != NULL;
    }
    int rc = ctl_send(p->fd, &m, &p->mem_fd, 1);
    p->is_welcome_due = p->is_welcome_due && rc != 0;
    return rc;
}

static int send_results(struct data *p)
{
    int rc = 0;
    while (rc == 0 && p->results) {
        struct data_req *r = p->results;
        union ctl_msg m = {.result = {.h = {.op = CTL_RESULT,
                                            .seq = r->m->h.seq,
                                            .disk = r->m->h.disk,
                                            .rc = MIN(r->rc, 0)},
                                      .value = r->value}};
        copy_text(m.result.name, sizeof(m.result.name), r->err.name);
        copy_text(m.result.text, sizeof(m.result.text), r->rc < 0 ? r->err.msg : NULL);
        rc = ctl_send(p->fd, &m, r->fds, r->n_fds);
        if (rc == 0) {
            p->results = r->next;
            p->results_tail = p->results ? p->results_tail : &p->results;
            p->n_results--;
            data_req_free(r);
        }
    }
    return rc;
}

static int send_blocks(struct data *p)
{
    union ctl_msg m;
    unsigned slot = 0;
    int rc = 0;
    data_slots_assign(p);
    while (rc == 0 && data_slots_next(p, &m, &slot)) {
        rc = ctl_send(p->fd, &m, NULL, 0);
        p->slots[slot].is_due = rc != 0;
    }
    return rc;
}

static int send_done(struct data *p, struct data_disk *d)
{
    unsigned done = atomic_load(&d->done);
    p->done_sent[d->no] &= done; /* the number of a set that has ended is another's next */
    unsigned todo = done & ~p->done_sent[d->no];
    for (unsigned i = 0; i < BLK_MAX_FROZEN; i++) {
        if ((todo & (1u << i)) == 0) {
            continue;
        }
        union ctl_msg m = {.h = {.op = CTL_SNAP_DONE, .disk = d->no}};
        pthread_mutex_lock(&d->mu);
        memcpy(m.h.snap, d->frozen[i], BLK_SNAP_ID);
        pthread_mutex_unlock(&d->mu);
        int rc = m.h.snap[0] ? ctl_send(p->fd, &m, NULL, 0) : 0;
        if (rc != 0) {
            return rc;
        }
        p->done_sent[d->no] |= 1u << i;
    }
    return 0;
}

static int send_state(struct data *p, struct data_disk *d)
{
    if (!d->is_state_due || d->shown.h.op == 0) {
        return 0;
    }
    union ctl_msg m = {.state = d->shown};
    int rc = ctl_send(p->fd, &m, NULL, 0);
    d->is_state_due = rc != 0;
    return rc;
}

/* In the order of what waits longest behind it: answers, blocks that guests wait for, the rest. */
static int send_all(struct data *p)
{
    int rc = p->is_welcome_due ? send_welcome(p) : 0;
    rc = rc != 0 ? rc : send_results(p);
    rc = rc != 0 ? rc : send_blocks(p);
    for (unsigned i = 0; rc == 0 && i < CTL_MAX_DISKS; i++) {
        if (p->disks[i]) {
            rc = send_done(p, p->disks[i]);
            rc = rc != 0 ? rc : send_state(p, p->disks[i]);
        }
    }
    return rc;
}

void data_pump(struct data *p)
{
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        if (p->disks[i] && p->disks[i]->is_cut) {
            data_slots_drop(p->disks[i], -EIO);
        }
    }
    if (p->fd < 0) {
        return;
    }
    int rc = send_all(p);
    if (rc == -EPIPE) { /* what it said before it went is still read */
        drop_results(p);
        loop_fd_mod(p->link, EPOLLIN);
        return;
    }
    uint32_t in = p->n_results < DATA_MAX_RESULTS ? EPOLLIN : 0;
    loop_fd_mod(p->link, in | (rc == -EAGAIN ? EPOLLOUT : 0));
}

static void on_wake(void *ctx)
{
    struct data *p = ctx;
    atomic_store(&p->is_woken, false);
    data_pump(p);
}

void data_wake(struct data *p)
{
    if (!atomic_exchange(&p->is_woken, true)) {
        loop_post(p->loop, on_wake, p);
    }
}
