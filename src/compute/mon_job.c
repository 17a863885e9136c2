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
    *j = (struct mon_job){.op = MON_JOB_NONE};
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

static void send_step(struct mon *m, const char *name, struct buf *args)
{
    int r = buf_ok(args) ? mon_qmp_send(m, MON_CMD_JOB, m->job.slot, name,
                                        args->n ? buf_str(args) : STR_NONE)
                         : -E2BIG;
    if (r < 0) {
        mon_job_abort(m, -EIO, "QEMU's control socket is not there");
    }
}

static void args_chardev(struct buf *b, unsigned slot, const char *volume_id)
{
    char id[QEMU_CHARDEV_MAX];
    qemu_disk_chardev(slot, volume_id, id);
    buf_fmt(b, "{\"id\":\"%s\"}", id);
}

static void step_add(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    switch (j->step) {
    case 0:
        memcpy(m->st.name[j->slot], j->cmd.name, GM_NAME_MAX);
        qemu_disk_chardev_json(b, j->slot, j->cmd.name, j->path);
        send_step(m, "chardev-add", b);
        return;
    case 1:
        qemu_disk_device_json(b, j->slot, j->cmd.name, j->cmd.n_queues, false);
        send_step(m, "device_add", b);
        return;
    default: set_slot(m, j->slot, GM_SLOT_USED); job_end(m, 0, "");
    }
}

/* A connection that is not there answers with an error that does not matter. */
static void step_clean(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    if (j->step == 0) {
        args_chardev(b, j->slot, m->st.name[j->slot]);
        send_step(m, "chardev-remove", b);
        return;
    }
    set_slot(m, j->slot, GM_SLOT_EMPTY);
    m->dirty_slots &= ~(1u << j->slot);
    job_end(m, j->code, j->text);
}

static void args_device(struct buf *b, unsigned slot)
{
    buf_fmt(b, "{\"id\":\"disk%u\"}", slot);
}

static void step_cut(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    if (j->step == 0) {
        args_device(b, j->slot);
        send_step(m, "device_del", b);
        return;
    }
    set_slot(m, j->slot, GM_SLOT_CUT);
    job_end(m, 0, "");
}

static void step_del(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    if (j->step == 0) {
        args_device(b, j->slot);
        send_step(m, "device_del", b);
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
        send_step(m, name, b);
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
    bool is_error_fine = j->op == MON_JOB_CLEAN || j->op == GM_OP_DISK_CUT;
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
    m->job = (struct mon_job){.op = MON_JOB_CLEAN, .slot = slot};
    job_step(m);
}

/* What goes into a command for QEMU has no quotes, commas or backslashes. */
static bool is_path(const struct gm_cmd *c)
{
    bool is_ok = c->data_n > 1 && c->data_n < sizeof(c->data) && c->data[0] == '/';
    for (uint32_t i = 0; is_ok && i < c->data_n; i++) {
        char b = c->data[i];
        is_ok = (b >= 'a' && b <= 'z') || (b >= 'A' && b <= 'Z') || (b >= '0' && b <= '9') ||
                strchr("/._-:+", b);
    }
    return is_ok && memchr(c->data, 0, c->data_n) == NULL;
}

void mon_job_start(struct mon *m, const struct gm_cmd *c)
{
    unsigned slot = 0;
    char label[QEMU_CHARDEV_MAX], id[GM_NAME_MAX];
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
    } else if (c->op == GM_OP_DISK_ADD &&
               (qemu_disk_chardev(c->slot, c->name, label),
                !is_path(c) || !c->n_queues ||
                    !qemu_disk_of_chardev(str_c(label), &slot, id))) {
        code = -EINVAL;
        refuse = "a disk needs a volume's id, a path and queues";
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
    m->job = (struct mon_job){.op = c->op, .slot = c->slot, .seq = c->head.seq, .cmd = *c};
    if (c->op == GM_OP_DISK_ADD) {
        memcpy(m->job.path, c->data, c->data_n);
    }
    if (c->op == GM_OP_REBOOT) {
        m->is_reboot_asked = true;
    } else if (c->op == GM_OP_POWERDOWN) {
        m->is_reboot_asked = false;
    } else if (c->op == GM_OP_DISK_DEL) {
        m->st.is_busy[c->slot] = 0;
    }
    job_step(m);
}
