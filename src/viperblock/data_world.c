#include "viperblock/data_world.h"
#include "base/time.h"
#include "blk/nbd_test_client.h"
#include "loop/child.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/wait.h>

#define ANSWER_NS UINT64_C(20000000000)

const char *dw_exe;

/* ---- the process ---- */

static int listen_at(const char *path, int type)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    assert_true(strlen(path) < sizeof(a.sun_path));
    memcpy(a.sun_path, path, strlen(path));
    int fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    (void)unlink(path);
    assert_int_equal(bind(fd, (struct sockaddr *)&a, sizeof(a)), 0);
    assert_int_equal(listen(fd, 64), 0);
    return fd;
}

void dw_spawn(struct dw *w)
{
    struct err err = ERR_INIT;
    const char *const argv[] = {dw_exe, "test", NULL};
    const struct child_fd fds[] = {{w->listen_fd, 3}};
    const struct child_opts o = {
        .argv = argv, .fds = fds, .n_fds = 1, .err_fd = 2, .death_signal = SIGKILL};
    if (child_spawn(&o, &w->pid, &err) != 0) {
        fail_msg("%s", err.msg);
    }
}

void dw_connect(struct dw *w)
{
    struct sockaddr_un a = {.sun_family = AF_UNIX};
    memcpy(a.sun_path, w->ctl, MIN(strlen(w->ctl), sizeof(a.sun_path) - 1));
    if (w->fd >= 0) {
        close(w->fd);
    }
    if (w->mem) {
        munmap(w->mem, (size_t)CTL_N_SLOTS * BLK_BLOCK);
    }
    w->fd = socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
    assert_true(w->fd >= 0);
    assert_int_equal(connect(w->fd, (struct sockaddr *)&a, sizeof(a)), 0);
    struct pollfd p = {.fd = w->fd, .events = POLLIN};
    assert_int_equal(poll(&p, 1, (int)(ANSWER_NS / NS_PER_MS)), 1);
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    assert_int_equal(ctl_recv(w->fd, true, &m, fds, &n), 0);
    assert_int_equal(m.h.op, CTL_WELCOME);
    assert_int_equal(m.welcome.pid, w->pid);
    w->n_disks = m.welcome.n_disks;
    assert_int_equal(ftruncate(fds[0], 4096), -1); /* sealed: nobody can pull it away */
    w->mem = mmap(NULL, (size_t)CTL_N_SLOTS * BLK_BLOCK, PROT_READ | PROT_WRITE, MAP_SHARED,
                  fds[0], 0);
    assert_true(w->mem != MAP_FAILED);
    close(fds[0]);
}

void dw_init(struct dw *w)
{
    memset(w, 0, sizeof(*w));
    w->fd = -1;
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        w->disks[i].listen_vu = w->disks[i].listen_nbd = -1;
    }
    tmpdir_init(&w->dir, "data");
    tmpdir_path(&w->dir, "ctl.sock", w->ctl);
    w->listen_fd = listen_at(w->ctl, SOCK_SEQPACKET);
    dw_spawn(w);
    dw_connect(w);
}

int dw_wait(struct dw *w)
{
    int status = 0;
    for (unsigned i = 0; i < 20000; i++) {
        pid_t got = waitpid(w->pid, &status, WNOHANG);
        if (got == w->pid) {
            w->pid = 0;
            return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
        }
        usleep(1000);
    }
    fail_msg("the process does not end");
    return -1;
}

void dw_kill(struct dw *w)
{
    if (w->pid > 0) {
        assert_int_equal(kill(w->pid, SIGKILL), 0);
        assert_int_equal(dw_wait(w), 128 + SIGKILL);
    }
}

bool dw_is_alive(struct dw *w)
{
    return w->pid > 0 && waitpid(w->pid, NULL, WNOHANG) == 0;
}

static void drop_uploads(struct dw_upload *u)
{
    for (unsigned i = 0; i < DW_BLOCKS; i++) {
        free(u->blocks[i]);
    }
    memset(u, 0, sizeof(*u));
}

void dw_done(struct dw *w)
{
    dw_kill(w);
    close(w->fd);
    close(w->listen_fd);
    munmap(w->mem, (size_t)CTL_N_SLOTS * BLK_BLOCK);
    for (unsigned i = 0; i < CTL_MAX_DISKS; i++) {
        drop_uploads(&w->disks[i].up);
        if (w->disks[i].listen_vu >= 0) {
            close(w->disks[i].listen_vu);
        }
        if (w->disks[i].listen_nbd >= 0) {
            close(w->disks[i].listen_nbd);
        }
    }
    tmpdir_done(&w->dir);
}

/* ---- what it asks ---- */

void dw_pattern(uint64_t off, uint8_t *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        uint64_t at = off + i;
        p[i] = (uint8_t)((at >> 9) * 37 + at * 11 + 5);
    }
}

static void reply(struct dw *w, const struct ctl_head *h, enum ctl_op op, int rc)
{
    union ctl_msg m = {.h = *h};
    m.h.op = (uint16_t)op;
    m.h.rc = rc;
    m.h.arg = 0;
    assert_int_equal(ctl_send(w->fd, &m, NULL, 0), 0);
}

static void on_fetch(struct dw *w, const struct ctl_head *h, enum dw_store how)
{
    static const int rcs[] = {[DW_ANSWER] = CTL_FETCHED_DATA,
                              [DW_ZEROS] = CTL_FETCHED_ZEROS,
                              [DW_EIO] = -EIO,
                              [DW_EAGAIN] = -EAGAIN};
    if (how == DW_HOLD) {
        assert_in_range(w->n_held, 0, ARRAY_LEN(w->held) - 1);
        w->held[w->n_held++] = *h;
        return;
    }
    if (how == DW_ANSWER) {
        dw_pattern(h->block * BLK_BLOCK, w->mem + (size_t)h->slot * BLK_BLOCK, BLK_BLOCK);
    }
    reply(w, h, CTL_FETCHED, rcs[how]);
}

static void on_upload(struct dw *w, const struct ctl_head *h)
{
    struct dw_upload *u = &w->disks[h->disk].up;
    assert_in_range(h->block, 0, DW_BLOCKS - 1);
    if (!u->blocks[h->block]) {
        u->blocks[h->block] = malloc(BLK_BLOCK);
        assert_non_null(u->blocks[h->block]);
        u->n++;
    }
    memcpy(u->blocks[h->block], w->mem + (size_t)h->slot * BLK_BLOCK, BLK_BLOCK);
    reply(w, h, CTL_STORED, 0);
}

void dw_release(struct dw *w, int rc)
{
    unsigned n = w->n_held;
    w->n_held = 0;
    for (unsigned i = 0; i < n; i++) {
        if (w->held[i].op == CTL_UPLOAD && rc == 0) {
            on_upload(w, &w->held[i]);
        } else if (w->held[i].op == CTL_UPLOAD) {
            reply(w, &w->held[i], CTL_STORED, rc);
        } else {
            on_fetch(w, &w->held[i], rc == 0 ? DW_ANSWER : rc == -EIO ? DW_EIO : DW_EAGAIN);
        }
    }
}

static void on_message(struct dw *w, const union ctl_msg *m)
{
    struct dw_disk *d = &w->disks[m->h.disk];
    switch ((enum ctl_op)m->h.op) {
    case CTL_FETCH:
        w->n_fetches++;
        w->n_background += m->h.arg == 1;
        if (m->h.block < DW_BLOCKS) {
            w->fetched[m->h.block]++;
        }
        on_fetch(w, &m->h, w->store);
        break;
    case CTL_UPLOAD:
        if (w->holds_uploads) {
            assert_in_range(w->n_held, 0, ARRAY_LEN(w->held) - 1);
            w->held[w->n_held++] = m->h;
        } else {
            on_upload(w, &m->h);
        }
        break;
    case CTL_SNAP_DONE:
        memcpy(d->done, m->h.snap, BLK_SNAP_ID);
        d->n_done++;
        break;
    case CTL_DISK_STATE:
        d->state = m->state;
        d->n_states++;
        break;
    default: fail_msg("message %u was not expected", m->h.op);
    }
}

/* The next message; false: none came in time. A RESULT is the caller's. */
static bool next(struct dw *w, uint64_t until, int fd, union ctl_msg *ret, size_t *n_fds,
                 int fds[CTL_MAX_FDS])
{
    struct pollfd p[] = {{.fd = w->fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    uint64_t now = time_mono_ns();
    int ms = until > now ? (int)((until - now) / NS_PER_MS) + 1 : 0;
    if (poll(p, 2, ms) <= 0 || (p[0].revents == 0 && p[1].revents != 0)) {
        return false;
    }
    int rc = ctl_recv(w->fd, true, ret, fds, n_fds);
    if (rc != 0) {
        fail_msg("the process's connection: %d", rc);
    }
    return true;
}

bool dw_serve(struct dw *w, uint64_t ns, int fd, bool (*until)(struct dw *w))
{
    uint64_t end = time_mono_ns() + ns;
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    while (!until || !until(w)) {
        if (!next(w, end, fd, &m, &n, fds)) {
            return fd >= 0 && time_mono_ns() < end;
        }
        on_message(w, &m);
    }
    return true;
}

/* ---- what it is asked ---- */

union ctl_msg dw_msg(enum ctl_op op, unsigned disk)
{
    return (union ctl_msg){.h = {.op = (uint16_t)op, .disk = disk}};
}

int dw_ask(struct dw *w, union ctl_msg *m, const int *fds, size_t n_fds, struct ctl_result *ret)
{
    uint64_t end = time_mono_ns() + ANSWER_NS;
    uint32_t seq = ++w->seq;
    m->h.seq = seq;
    assert_int_equal(ctl_send(w->fd, m, fds, n_fds), 0);
    for (;;) {
        union ctl_msg a;
        int got[CTL_MAX_FDS];
        size_t n = 0;
        if (!next(w, end, -1, &a, &n, got)) {
            fail_msg("no answer to message %u", m->h.op);
        }
        if (a.h.op != CTL_RESULT) {
            on_message(w, &a);
            continue;
        }
        assert_int_equal(a.h.seq, seq);
        for (size_t i = 0; i < n && m->h.op != CTL_GIVE; i++) {
            close(got[i]);
        }
        if (m->h.op == CTL_GIVE) { /* in the message, for the test that asked */
            assert_true(n <= 2);
            memcpy(m->h.snap, got, n * sizeof(int));
            m->h.arg32 = (uint32_t)n;
        }
        if (ret) {
            *ret = a.result;
        }
        return a.h.rc;
    }
}

int dw_simple(struct dw *w, enum ctl_op op, unsigned disk, uint64_t arg)
{
    union ctl_msg m = dw_msg(op, disk);
    m.h.arg = arg;
    return dw_ask(w, &m, NULL, 0, NULL);
}

int dw_snap(struct dw *w, enum ctl_op op, unsigned disk, const char *snap)
{
    union ctl_msg m = dw_msg(op, disk);
    memcpy(m.h.snap, snap, strlen(snap));
    return dw_ask(w, &m, NULL, 0, NULL);
}

/* ---- disks ---- */

static int file_at(const char *path, uint64_t size)
{
    int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    if (size > 0) {
        assert_int_equal(ftruncate(fd, (off_t)size), 0);
    }
    return fd;
}

static void path_of(struct dw *w, unsigned no, const char *what, char buf[PATH_MAX])
{
    char name[32];
    (void)snprintf(name, sizeof(name), "%s-%u", what, no);
    tmpdir_path(&w->dir, name, buf);
}

void dw_make(struct dw *w, unsigned no, uint64_t size, bool has_map, uint64_t source_size,
             uint32_t flags)
{
    struct dw_disk *d = &w->disks[no];
    struct err err = ERR_INIT;
    d->size = size;
    d->has_map = has_map;
    d->flags = flags;
    path_of(w, no, "data", d->data);
    path_of(w, no, "map", d->map);
    path_of(w, no, "run", d->run);
    path_of(w, no, "aside", d->aside);
    path_of(w, no, "vu", d->vu);
    path_of(w, no, "nbd", d->nbd);
    close(file_at(d->data, size));
    if (has_map) {
        AUTO_FD fd = file_at(d->map, 0);
        struct blk_map_opts o = {.size = size,
                                 .source_size = source_size,
                                 .is_encrypted = (flags & CTL_OPEN_KEY) != 0};
        if (blk_map_create(fd, &o, &err) != 0) {
            fail_msg("%s", err.msg);
        }
        close(file_at(d->run, 0));
        close(file_at(d->aside, 0));
    }
}

void dw_open_msg(struct dw *w, unsigned no, union ctl_msg *m, int fds[CTL_MAX_FDS],
                 size_t *ret_n)
{
    struct dw_disk *d = &w->disks[no];
    size_t n = 0;
    *m = dw_msg(CTL_OPEN, no);
    (void)snprintf(m->open.id, sizeof(m->open.id), "vol-%u", no);
    m->open.size = d->size;
    m->open.n_queues = 2;
    m->open.flags = d->flags;
    for (unsigned i = 0; i < 64; i++) {
        m->open.key[i] = (uint8_t)(i * 7 + 1);
    }
    fds[n++] = file_at(d->data, 0);
    if (d->has_map) {
        m->open.flags |= CTL_OPEN_MAP | CTL_OPEN_RUN | CTL_OPEN_ASIDE;
        fds[n++] = file_at(d->map, 0);
        fds[n++] = file_at(d->run, 0);
        fds[n++] = file_at(d->aside, 0);
    }
    *ret_n = n;
}

int dw_open(struct dw *w, unsigned no, struct ctl_result *ret)
{
    union ctl_msg m;
    int fds[CTL_MAX_FDS];
    size_t n = 0;
    dw_open_msg(w, no, &m, fds, &n);
    int rc = dw_ask(w, &m, fds, n, ret);
    for (size_t i = 0; i < n; i++) {
        close(fds[i]);
    }
    return rc;
}

int dw_serve_nbd(struct dw *w, unsigned no)
{
    struct dw_disk *d = &w->disks[no];
    union ctl_msg m = dw_msg(CTL_SERVE_NBD, no);
    if (d->listen_nbd < 0) {
        d->listen_nbd = listen_at(d->nbd, SOCK_STREAM);
    }
    m.serve.uid = geteuid();
    return dw_ask(w, &m, &d->listen_nbd, 1, NULL);
}

int dw_serve_vu(struct dw *w, unsigned no)
{
    struct dw_disk *d = &w->disks[no];
    union ctl_msg m = dw_msg(CTL_SERVE_VU, no);
    if (d->listen_vu < 0) {
        d->listen_vu = listen_at(d->vu, SOCK_STREAM);
    }
    m.serve.uid = geteuid();
    m.serve.n_queues = 2;
    (void)snprintf(m.serve.serial, sizeof(m.serve.serial), "vol%u", no);
    return dw_ask(w, &m, &d->listen_vu, 1, NULL);
}

/* ---- NBD ---- */

int dw_nbd(struct dw *w, unsigned no)
{
    int fd = nbd_client(w->disks[no].nbd);
    nbd_client_hello(fd, NBD_FIXED_NEWSTYLE | NBD_NO_ZEROES);
    nbd_client_opt(fd, NBD_OPT_GO, "\0\0\0\0\0\0", 6);
    nbd_client_until_ack(fd, NBD_OPT_GO);
    return fd;
}

void dw_nbd_start(int fd, unsigned type, uint64_t off, uint32_t len, const void *p)
{
    nbd_client_ask(fd, type, 0, 1, off, len, type == NBD_CMD_WRITE ? p : NULL);
}

uint32_t dw_nbd_end(struct dw *w, int fd, unsigned type, uint32_t len, void *p)
{
    if (!dw_serve(w, ANSWER_NS, fd, NULL)) {
        fail_msg("no answer to an NBD request");
    }
    uint32_t error = nbd_client_simple(fd, 1);
    if (error == 0 && type == NBD_CMD_READ) {
        nbd_client_get(fd, p, len);
    }
    return error;
}

uint32_t dw_nbd_io(struct dw *w, int fd, unsigned type, uint64_t off, uint32_t len, void *p)
{
    dw_nbd_start(fd, type, off, len, p);
    return dw_nbd_end(w, fd, type, len, p);
}
