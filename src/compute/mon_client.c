#include "base/log.h"
#include "compute/mon_int.h"
#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

LOG_MODULE("guestmon.client");

void mon_client_drop(struct mon *m)
{
    if (m->conn_fd >= 0) {
        close(m->conn_fd);
        m->conn_fd = -1;
    }
}

/* The service has one connection; a new one (after its restart) replaces the old. */
void mon_accept(struct mon *m)
{
    int fd = accept4(m->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd < 0) {
        return;
    }
    struct ucred peer;
    socklen_t n = sizeof(peer);
    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &n) < 0 || peer.uid != 0) {
        log_warn_rl("client.refused", KV_U64("uid", peer.uid));
        close(fd);
        return;
    }
    mon_client_drop(m);
    m->conn_fd = fd;
    m->is_state_new = true;
}

static void send_msg(struct mon *m, const void *p, size_t n)
{
    if (m->conn_fd < 0) {
        return;
    }
    ssize_t w;
    do {
        w = send(m->conn_fd, p, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    } while (w < 0 && errno == EINTR);
    if (w != (ssize_t)n) {
        /* It does not read, or has gone: it will connect again and gets the whole state then.
         */
        mon_client_drop(m);
    }
}

void mon_result(struct mon *m, uint32_t seq, int code, const char *text)
{
    struct gm_result r;
    gm_result_init(&r, seq, code, text);
    send_msg(m, &r, sizeof(r));
}

void mon_send_state(struct mon *m)
{
    m->is_state_new = false;
    send_msg(m, &m->st, sizeof(m->st));
}

static void run_command(struct mon *m, const struct gm_cmd *c)
{
    switch (c->op) {
    case GM_OP_STATE:
        mon_result(m, c->head.seq, 0, "");
        m->is_state_new = true;
        break;
    case GM_OP_QUIT:
        if (m->st.phase != GM_PHASE_EXITED) {
            mon_quit(m);
        }
        mon_result(m, c->head.seq, 0, "");
        break;
    case GM_OP_INPUT:
        mon_result(m, c->head.seq, mon_console_input(m, str_n(c->data, c->data_n)), "");
        break;
    case GM_OP_BYE:
        if (m->st.phase != GM_PHASE_EXITED) {
            mon_result(m, c->head.seq, -EBUSY, "QEMU is still there");
            break;
        }
        mon_result(m, c->head.seq, 0, "");
        m->is_done = true;
        break;
    default: mon_job_start(m, c); break;
    }
}

void mon_client_read(struct mon *m)
{
    union gm_msg in;
    /* Without room for control data: descriptors that somebody sends are closed by the kernel. */
    struct iovec iov = {.iov_base = &in, .iov_len = sizeof(in)};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t n = recvmsg(m->conn_fd, &msg, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
        return;
    }
    if (n <= 0 || (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) ||
        gm_cmd_check(&in, (size_t)n) < 0) {
        mon_client_drop(m);
        return;
    }
    run_command(m, &in.cmd);
}
