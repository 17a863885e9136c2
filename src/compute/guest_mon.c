#include "base/log.h"
#include "compute/compute_int.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>

LOG_MODULE("compute.monitor");

#define ADOPT_PAUSE_NS (UINT64_C(200) * 1000000)
#define WINDOW_NS      (UINT64_C(1) * 1000000000)
#define MAX_MSGS       5000u /* of one monitor in a window */
#define MAX_BATCH      32u   /* messages of one monitor in a turn of the loop */

void guest_disconnect(struct guest *g)
{
    loop_fd_del(g->conn);
    g->conn = NULL;
    if (g->conn_fd >= 0) {
        close(g->conn_fd);
        g->conn_fd = -1;
    }
    if (g->cmd.seq) {
        uint32_t op = g->cmd.op;
        unsigned slot = g->cmd.slot;
        g->cmd.seq = 0;
        guest_disk_result(g, op, slot, -ECONNRESET, "the guest's monitor went away");
    }
}

static const char *exit_text(const struct gm_state *s, char *buf, size_t size)
{
    enum { REASON_MAX = 160 }; /* the end of the line says what was wrong */
    size_t n = strnlen(s->text, sizeof(s->text));
    switch (s->exit) {
    case GM_EXIT_CODE:
        (void)snprintf(buf, size, "QEMU ended with status %d%s%.*s", (int)s->exit_value,
                       n == 0            ? ""
                       : n <= REASON_MAX ? ": "
                                         : ": ...",
                       REASON_MAX, s->text + (n > REASON_MAX ? n - REASON_MAX : 0));
        break;
    case GM_EXIT_SIGNAL:
        (void)snprintf(buf, size, "QEMU was killed by signal %d", (int)s->exit_value);
        break;
    case GM_EXIT_UNKNOWN:
        (void)snprintf(buf, size, "QEMU ended while nobody watched it");
        break;
    default: buf[0] = '\0';
    }
    return buf;
}

static void on_state(struct guest *g, const struct gm_state *s)
{
    char text[VM_REASON_MAX];
    bool is_first = !g->has_state;
    g->mon = *s;
    g->has_state = true;
    if (g->note.qemu.pid != s->qemu_pid || g->note.qemu.start != s->qemu_start) {
        struct err err = ERR_INIT;
        g->note.qemu = (struct proc_id){.pid = s->qemu_pid, .start = s->qemu_start};
        if (guest_note_write(&g->c->spawn.dirs, &g->note, &err) < 0) {
            log_warn_rl("note.failed", KV_CSTR("id", g->id), KV_ERR(&err));
        }
        guest_mark(g);
    }
    if (is_first) {
        log_info("guest.connected", KV_CSTR("id", g->id), KV_I64("pid", s->qemu_pid),
                 KV_U64("phase", s->phase));
    }
    switch (s->phase) {
    case GM_PHASE_STARTING: g->proc = VM_PROC_LAUNCHING; break;
    case GM_PHASE_RUNNING:
    case GM_PHASE_ENDING: g->proc = VM_PROC_RUNNING; break;
    default:
        if (g->proc != VM_PROC_ENDED) {
            enum vm_end end = s->exit == GM_EXIT_GUEST  ? VM_END_GUEST
                              : s->exit == GM_EXIT_QUIT ? VM_END_QUIT
                                                        : VM_END_CRASH;
            guest_set_end(g, end, exit_text(s, text, sizeof(text)));
        }
    }
}

static void on_result(struct guest *g, const struct gm_result *r)
{
    if (!g->cmd.seq || r->head.seq != g->cmd.seq) {
        return; /* of a command that needs no answer */
    }
    uint32_t op = g->cmd.op;
    unsigned slot = g->cmd.slot;
    g->cmd.seq = 0;
    if (op == GM_OP_DISK_ADD || op == GM_OP_DISK_DEL || op == GM_OP_DISK_CUT ||
        op == GM_OP_DISK_GROW) {
        guest_disk_result(g, op, slot, r->code, r->text);
    } else if (r->code < 0) {
        log_warn_rl("command.failed", KV_CSTR("id", g->id), KV_U64("op", op),
                    KV_CSTR("error", r->text));
        g->again_ns = loop_now_ns(g->c->o.loop) + ADOPT_PAUSE_NS;
    }
}

/* The monitor has gone, or broke the protocol: QEMU may live on. Look for it. */
static void lost(struct guest *g, const char *why)
{
    log_warn_rl("monitor.lost", KV_CSTR("id", g->id), KV_CSTR("reason", why));
    guest_disconnect(g);
    g->has_state = false;
    if (g->note.monitor.pid > 0) {
        compute_reap_later(g->c, &g->note.monitor, g->id);
    }
    if (g->proc != VM_PROC_ENDED) {
        g->is_pending_adopt = true;
        g->adopt_ns = loop_now_ns(g->c->o.loop) + ADOPT_PAUSE_NS;
    }
    compute_poke(g->c);
}

/* A monitor has one QEMU all its life. */
static bool is_strange(const struct guest *g, const union gm_msg *m)
{
    return m->head.type == GM_STATE && g->note.qemu.pid &&
           (m->state.qemu_pid != g->note.qemu.pid || m->state.qemu_start != g->note.qemu.start);
}

/* More than any guest makes by resetting itself without end; others have to be served too. */
static bool is_flood(struct guest *g)
{
    uint64_t now_ns = loop_now_ns(g->c->o.loop);
    if (now_ns > g->window_ns + WINDOW_NS) {
        g->window_ns = now_ns;
        g->n_msgs = 0;
    }
    return ++g->n_msgs > MAX_MSGS;
}

static void on_ready(void *ctx, uint32_t ready)
{
    struct guest *g = ctx;
    for (unsigned i = 0; i < MAX_BATCH; i++) {
        union gm_msg m;
        ssize_t n = recv(g->conn_fd, &m, sizeof(m), MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (n <= 0) {
            lost(g, "it closed the connection");
            return;
        }
        if (gm_answer_check(&m, (size_t)n) < 0 || is_strange(g, &m) || is_flood(g)) {
            /* Of another version (an update), or not ours any more: a new one takes QEMU over. */
            (void)proc_kill(&g->note.monitor);
            lost(g, "it sent what no monitor sends");
            return;
        }
        if (m.head.type == GM_STATE) {
            on_state(g, &m.state);
        } else {
            on_result(g, &m.result);
        }
    }
    guest_step(g);
}

void guest_connect(struct guest *g, int fd)
{
    guest_disconnect(g);
    g->has_state = false;
    g->conn_fd = fd;
    vm_fsm_ask_again(&g->fsm);
    if (loop_fd_add(g->c->o.loop, fd, EPOLLIN, on_ready, g, &g->conn) < 0) {
        lost(g, "it cannot be watched");
    }
}

static bool send_cmd(struct guest *g, const struct gm_cmd *c)
{
    return g->conn_fd >= 0 &&
           send(g->conn_fd, c, sizeof(*c), MSG_NOSIGNAL | MSG_DONTWAIT) == (ssize_t)sizeof(*c);
}

bool guest_command(struct guest *g, enum gm_op op, const struct gm_cmd *args)
{
    struct gm_cmd c;
    if (g->conn_fd < 0 || g->cmd.seq) {
        return false;
    }
    gm_cmd_init(&c, op, ++g->seq ? g->seq : ++g->seq);
    if (args) {
        c.slot = args->slot;
        c.size = args->size;
        c.n_queues = args->n_queues;
        c.is_nbd = args->is_nbd;
        c.data_n = args->data_n;
        memcpy(c.name, args->name, sizeof(c.name));
        memcpy(c.data, args->data, sizeof(c.data));
    }
    if (!send_cmd(g, &c)) {
        return false;
    }
    g->cmd.seq = c.head.seq;
    g->cmd.op = (uint32_t)op;
    g->cmd.slot = c.slot;
    g->cmd.since_ns = loop_now_ns(g->c->o.loop);
    return true;
}

void guest_send_now(struct guest *g, enum gm_op op, struct str data)
{
    struct gm_cmd c;
    gm_cmd_init(&c, op, ++g->seq ? g->seq : ++g->seq);
    c.data_n = (uint32_t)MIN(data.n, sizeof(c.data));
    if (c.data_n) {
        memcpy(c.data, data.p, c.data_n);
    }
    if (!send_cmd(g, &c)) {
        log_warn_rl("command.not_sent", KV_CSTR("id", g->id), KV_U64("op", op));
    }
}
