#include "compute/mon_int.h"
#include "compute/qemu_args.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

static void job_step(struct mon *m);

static void job_end(struct mon *m, int code, const char *text)
{
    struct mon_job *j = &m->job;
    uint32_t seq = j->seq;
    if (j->fd >= 0) {
        close(j->fd);
    }
    *j = (struct mon_job){.op = MON_JOB_NONE, .fd = -1};
    /* The state first: who reads the result knows what it led to. */
    mon_send_state(m);
    if (seq) {
        mon_result(m, seq, code, text);
    }
}

static void set_slot(struct mon *m, unsigned slot, enum gm_slot state)
{
    m->st.slot[slot] = (uint8_t)state;
    if (state == GM_SLOT_EMPTY) {
        memset(m->st.name[slot], 0, GM_NAME_MAX);
        m->st.is_busy[slot] = 0;
    }
    m->is_state_new = true;
}

static void send_step(struct mon *m, const char *name, struct buf *args, int fd)
{
    int r = buf_ok(args) ? mon_qmp_send(m, MON_CMD_JOB, m->job.slot, name,
                                        args->n ? buf_str(args) : STR_NONE, fd)
                         : -E2BIG;
    if (r < 0) {
        mon_job_abort(m, -EIO, "QEMU's control socket is not there");
    }
}

static void args_node(struct buf *b, const char *prefix, unsigned slot)
{
    buf_fmt(b, "{\"node-name\":\"%s%u\"}", prefix, slot);
}

static void args_fdset(struct buf *b, unsigned slot)
{
    buf_fmt(b, "{\"fdset-id\":%u}", slot);
}

static void step_add(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    switch (j->step) {
    case 0:
        args_fdset(b, j->slot);
        send_step(m, "add-fd", b, j->fd);
        return;
    case 1:
        /* QEMU has its copy: ours would keep the volume's lock. */
        close(j->fd);
        j->fd = -1;
        qemu_disk_file_json(b, j->slot, j->cmd.is_direct);
        send_step(m, "blockdev-add", b, -1);
        return;
    case 2:
        qemu_disk_node_json(b, j->slot, "f");
        send_step(m, "blockdev-add", b, -1);
        return;
    case 3:
        qemu_disk_device_json(b, j->slot, j->cmd.name, false);
        send_step(m, "device_add", b, -1);
        return;
    default:
        set_slot(m, j->slot, GM_SLOT_USED);
        memcpy(m->st.name[j->slot], j->cmd.name, GM_NAME_MAX);
        job_end(m, 0, "");
    }
}

/* Nodes that are not there answer with an error that does not matter. */
static void step_clean(struct mon *m, struct buf *b)
{
    static const char *const nodes[] = {"d", "f", "x"};
    struct mon_job *j = &m->job;
    if (j->step < ARRAY_LEN(nodes)) {
        args_node(b, nodes[j->step], j->slot);
        send_step(m, "blockdev-del", b, -1);
    } else if (j->step == ARRAY_LEN(nodes)) {
        args_fdset(b, j->slot);
        send_step(m, "remove-fd", b, -1);
    } else {
        set_slot(m, j->slot, GM_SLOT_EMPTY);
        m->dirty_slots &= ~(1u << j->slot);
        job_end(m, j->code, j->text);
    }
}

static void step_cut(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    switch (j->step) {
    case 0: /* fails when an earlier cut got this far: fine */
        qemu_disk_dead_json(b, j->slot, j->cmd.size);
        send_step(m, "blockdev-add", b, -1);
        return;
    case 1:
        buf_addc(b, "{\"options\":[");
        qemu_disk_node_json(b, j->slot, "x");
        buf_addc(b, "]}");
        send_step(m, "blockdev-reopen", b, -1);
        return;
    case 2:
        args_node(b, "f", j->slot);
        send_step(m, "blockdev-del", b, -1);
        return;
    case 3:
        args_fdset(b, j->slot);
        send_step(m, "remove-fd", b, -1);
        return;
    default: set_slot(m, j->slot, GM_SLOT_CUT); job_end(m, 0, "");
    }
}

static void step_del(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    if (j->step == 0) {
        buf_fmt(b, "{\"id\":\"disk%u\"}", j->slot);
        send_step(m, "device_del", b, -1);
        return;
    }
    if (m->st.slot[j->slot] == GM_SLOT_USED) {
        set_slot(m, j->slot, GM_SLOT_LEAVING);
    }
    job_end(m, 0, "");
}

static void step_simple(struct mon *m, const char *name, struct buf *b)
{
    struct mon_job *j = &m->job;
    if (j->step == 0) {
        send_step(m, name, b, -1);
        return;
    }
    if (j->op == GM_OP_RESET) {
        m->st.n_reboots_done++;
        m->is_reboot_asked = false;
    }
    job_end(m, 0, "");
}

static void job_step(struct mon *m)
{
    AUTO_BUF b;
    buf_init(&b, 4096);
    switch (m->job.op) {
    case GM_OP_DISK_ADD: step_add(m, &b); break;
    case GM_OP_DISK_DEL: step_del(m, &b); break;
    case GM_OP_DISK_CUT: step_cut(m, &b); break;
    case MON_JOB_CLEAN: step_clean(m, &b); break;
    case GM_OP_REBOOT:
    case GM_OP_POWERDOWN: step_simple(m, "system_powerdown", &b); break;
    case GM_OP_RESET: step_simple(m, "system_reset", &b); break;
    default: break;
    }
}

void mon_job_answer(struct mon *m, bool is_ok, struct str desc)
{
    struct mon_job *j = &m->job;
    if (j->op == MON_JOB_NONE) {
        return;
    }
    bool is_error_fine = j->op == MON_JOB_CLEAN || (j->op == GM_OP_DISK_CUT && j->step != 1);
    if (!is_ok && !is_error_fine) {
        char text[GM_TEXT_MAX];
        (void)snprintf(text, sizeof(text), "%.*s", STR_ARG(desc));
        if (j->op == GM_OP_DISK_ADD) {
            j->op = MON_JOB_CLEAN; /* take back what was made; the result is this error */
            j->step = 0;
            j->code = -EIO;
            memcpy(j->text, text, sizeof(text));
            job_step(m);
            return;
        }
        if (j->op == GM_OP_DISK_DEL && str_find_str(desc, STR("not found")) >= 0) {
            m->dirty_slots |= 1u << j->slot;
            job_end(m, 0, "");
            return;
        }
        bool is_asked_before =
            j->op == GM_OP_DISK_DEL && str_find_str(desc, STR("unplug")) >= 0;
        job_end(m, is_asked_before ? 0 : -EIO, text);
        return;
    }
    j->step++;
    job_step(m);
}

void mon_job_abort(struct mon *m, int code, const char *text)
{
    if (m->job.op != MON_JOB_NONE) {
        job_end(m, code, text);
    }
}

void mon_job_idle(struct mon *m)
{
    if (m->job.op != MON_JOB_NONE || !m->dirty_slots || !m->is_qmp_ready) {
        return;
    }
    unsigned slot = (unsigned)__builtin_ctz(m->dirty_slots);
    m->job = (struct mon_job){.op = MON_JOB_CLEAN, .slot = slot, .fd = -1};
    job_step(m);
}

/* Takes 'fd' (-1 = none came). */
void mon_job_start(struct mon *m, const struct gm_cmd *c, int fd)
{
    AUTO_FD own_fd = fd;
    const char *refuse = NULL;
    int code = -EBUSY;
    if (m->st.phase == GM_PHASE_EXITED) {
        code = -ESRCH;
        refuse = "QEMU has ended";
    } else if (m->job.op != MON_JOB_NONE) {
        refuse = "another command is running";
    } else if (!m->is_qmp_ready) {
        code = -EAGAIN;
        refuse = "QEMU's control socket is not ready";
    } else if (c->op == GM_OP_DISK_ADD && (own_fd < 0 || !c->name[0])) {
        code = -EINVAL;
        refuse = "a disk needs a name and a descriptor";
    } else if (c->op == GM_OP_DISK_ADD && m->st.slot[c->slot] != GM_SLOT_EMPTY) {
        code = -EEXIST;
        refuse = "the slot is in use";
    } else if ((c->op == GM_OP_DISK_DEL || c->op == GM_OP_DISK_CUT) &&
               m->st.slot[c->slot] == GM_SLOT_EMPTY) {
        code = -ENOENT;
        refuse = "the slot is empty";
    }
    if (refuse) {
        mon_result(m, c->head.seq, code, refuse);
        return;
    }
    m->job = (struct mon_job){
        .op = c->op, .slot = c->slot, .seq = c->head.seq, .cmd = *c, .fd = steal_fd(&own_fd)};
    if (c->op == GM_OP_REBOOT) {
        m->is_reboot_asked = true;
    } else if (c->op == GM_OP_POWERDOWN) {
        m->is_reboot_asked = false;
    } else if (c->op == GM_OP_DISK_DEL) {
        m->st.is_busy[c->slot] = 0;
    }
    job_step(m);
}
