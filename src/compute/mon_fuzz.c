/* The monitor between a hostile QEMU and a hostile peer: the input is cut into pieces, each sent
 * by one of the two. Whatever they send, every message to the service is one that
 * gm_answer_check() takes, no descriptor is lost, and the state keeps its rules. */
#include "base/log.h"
#include "base/time.h"
#include "compute/mon_int.h"
#include <assert.h>
#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int next_qmp[2] = {-1, -1};

/* What guestmon.c does with names and processes: here a socket pair and nothing to kill. */
int mon_connect(const struct mon *m, const char *name)
{
    (void)m;
    if (strcmp(name, "qmp.sock") != 0 || next_qmp[0] >= 0) {
        return -1;
    }
    assert(socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, next_qmp) == 0);
    return next_qmp[1];
}

void mon_kill(struct mon *m)
{
    (void)m;
}

static unsigned count_fds(void)
{
    unsigned n = 0;
    DIR *d = opendir("/proc/self/fd");
    while (d && readdir(d)) {
        n++;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

static void drain(int fd, bool is_service)
{
    union {
        union gm_msg msg;
        char bytes[65536];
    } in;
    ssize_t n;
    while (fd >= 0 && (n = recv(fd, &in, sizeof(in), MSG_DONTWAIT)) > 0) {
        assert(!is_service || gm_answer_check(&in.msg, (size_t)n) == 0);
    }
}

static void from_qemu(struct mon *m, const uint8_t *p, size_t n)
{
    if (m->qmp_fd < 0) {
        if (next_qmp[0] >= 0) { /* the end that QEMU held */
            close(next_qmp[0]);
            next_qmp[0] = -1;
        }
        mon_qmp_connect(m);
    }
    if (m->qmp_fd >= 0 && send(next_qmp[0], p, n, MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
        mon_qmp_read(m);
    }
    drain(next_qmp[0], false);
}

/* Half of the packets are well-formed but for the fields that the input chooses. */
static void from_service(struct mon *m, int pair[2], const uint8_t *p, size_t n)
{
    if (m->conn_fd < 0) {
        if (pair[0] >= 0) {
            close(pair[0]);
        }
        assert(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
        m->conn_fd = pair[1];
    }
    struct gm_cmd c;
    const void *what = p;
    size_t size = n;
    if (n >= 3 && (p[0] & 1)) {
        gm_cmd_init(&c, (enum gm_op)(p[1] % GM_OP_N), p[0]);
        c.slot = p[2] % GM_N_DISKS;
        c.n_queues = (uint32_t)n % 9;
        c.data_n = 2;
        memcpy(c.data, "/x", 2);
        memcpy(c.name, "vol-0", 5);
        what = &c;
        size = sizeof(c);
    }
    struct iovec iov = {.iov_base = (void *)(uintptr_t)what, .iov_len = size};
    union {
        struct cmsghdr align;
        char space[CMSG_SPACE(sizeof(int))];
    } ctl = {.space = {0}};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    if (n >= 3 && (p[0] & 2)) {
        int fd = pair[0];
        msg.msg_control = ctl.space;
        msg.msg_controllen = sizeof(ctl.space);
        struct cmsghdr *h = CMSG_FIRSTHDR(&msg);
        h->cmsg_level = SOL_SOCKET;
        h->cmsg_type = SCM_RIGHTS;
        h->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(h), &fd, sizeof(int));
    }
    if (sendmsg(pair[0], &msg, MSG_DONTWAIT | MSG_NOSIGNAL) >= 0) {
        mon_client_read(m);
    }
    drain(pair[0], true);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    int pair[2] = {-1, -1};
    unsigned n_fds = count_fds();
    log_init("mon_fuzz", LOG_LEVEL_ERROR);
    struct mon m = {.dir = "",
                    .listen_fd = -1,
                    .conn_fd = -1,
                    .qmp_fd = -1,
                    .con_fd = -1,
                    .err_fd = -1,
                    .pid_fd = -1,
                    .sig_fd = -1,
                    .now_ns = NS_PER_S};
    gm_state_init(&m.st);
    /* piece: one byte that says who, one with the length, the bytes */
    for (size_t off = 0; off + 2 <= size;) {
        uint8_t who = data[off];
        size_t n = MIN((size_t)data[off + 1] * (who & 0x40 ? 16 : 1), size - off - 2);
        const uint8_t *p = data + off + 2;
        off += 2 + n;
        m.now_ns += NS_PER_S * (who >> 4 & 3);
        if (who & 1) {
            from_service(&m, pair, p, n);
        } else {
            from_qemu(&m, p, n);
        }
        mon_qmp_tick(&m);
        mon_send_state(&m);
        drain(pair[0], true);
        union gm_msg check = {.state = m.st};
        assert(gm_answer_check(&check, sizeof(m.st)) == 0);
        assert(m.n_pending <= MON_MAX_PENDING);
    }
    mon_qmp_drop(&m);
    mon_client_drop(&m);
    for (unsigned i = 0; i < 2; i++) {
        int *fds[] = {&pair[0], &next_qmp[0]};
        if (*fds[i] >= 0) {
            close(*fds[i]);
            *fds[i] = -1;
        }
    }
    assert(count_fds() == n_fds);
    return 0;
}
