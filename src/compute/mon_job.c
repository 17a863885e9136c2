#include "compute/mon_int.h"
#include "compute/qemu_args.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

/* Steps whose errors are judged apart. */
#define CUT_REOPEN 2u
#define GROW_TIDY  4u

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

/* {"<key>":"<letter><slot>.<volume>"} */
static void args_label(struct buf *b, const char *key, char letter, unsigned slot,
                       const char *volume_id)
{
    char label[QEMU_LABEL_MAX];
    qemu_disk_label(letter, slot, volume_id, label);
    buf_fmt(b, "{\"%s\":\"%s\"}", key, label);
}

static void args_node(struct buf *b, char letter, unsigned slot)
{
    buf_fmt(b, "{\"node-name\":\"%c%u\"}", letter, slot);
}

/* Under the device's node d<slot> from now on: 'child'. */
static void args_reopen(struct buf *b, unsigned slot, const char *child)
{
    buf_addc(b, "{\"options\":[");
    qemu_disk_node_json(b, slot, child);
    buf_addc(b, "]}");
}

static void added(struct mon *m)
{
    set_slot(m, m->job.slot, GM_SLOT_USED);
    job_end(m, 0, "");
}

static void step_add(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    const struct gm_cmd *c = &j->cmd;
    char node[QEMU_LABEL_MAX];
    unsigned step = j->step + (c->is_nbd ? 10 : 0);
    qemu_disk_label('n', j->slot, c->name, node);
    switch (step) {
    case 0:
        m->letter[j->slot] = 'c';
        memcpy(m->st.name[j->slot], c->name, GM_NAME_MAX);
        qemu_disk_chardev_json(b, j->slot, c->name, j->path);
        send_step(m, "chardev-add", b);
        return;
    case 10:
        m->letter[j->slot] = 'n';
        memcpy(m->st.name[j->slot], c->name, GM_NAME_MAX);
        qemu_disk_nbd_json(b, 'n', j->slot, c->name, j->path);
        send_step(m, "blockdev-add", b);
        return;
    case 11:
        qemu_disk_node_json(b, j->slot, node);
        send_step(m, "blockdev-add", b);
        return;
    case 1:
    case 12:
        qemu_disk_device_json(b, j->slot, c->name, c->is_nbd, c->n_queues, false);
        send_step(m, "device_add", b);
        return;
    default: added(m);
    }
}

/* What is not there answers with an error that does not matter. */
static void step_clean(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    const char *name = m->st.name[j->slot];
    switch (j->step) {
    case 0:
        args_label(b, "id", 'c', j->slot, name);
        send_step(m, "chardev-remove", b);
        return;
    case 1: args_node(b, 'd', j->slot); break;
    case 2: args_label(b, "node-name", 'n', j->slot, name); break;
    case 3: args_label(b, "node-name", 'm', j->slot, name); break;
    case 4: args_node(b, 'x', j->slot); break;
    default:
        set_slot(m, j->slot, GM_SLOT_EMPTY);
        m->dirty_slots &= ~(1u << j->slot);
        job_end(m, j->code, j->text);
        return;
    }
    send_step(m, "blockdev-del", b);
}

static void args_device(struct buf *b, unsigned slot)
{
    buf_fmt(b, "{\"id\":\"disk%u\"}", slot);
}

/* vhost-user: the block service answers with errors already. NBD: we do, from now on; what is under
 * way ends first, so this comes before the block service takes the volume away. */
static void step_cut(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    bool is_nbd = m->letter[j->slot] != 'c';
    char dead[16];
    switch (j->step) {
    case 0:
        args_device(b, j->slot);
        send_step(m, "device_del", b);
        return;
    case 1:
        if (is_nbd) { /* fails when an earlier cut got this far: fine */
            qemu_disk_dead_json(b, j->slot, j->cmd.size);
            send_step(m, "blockdev-add", b);
            return;
        }
        break;
    case CUT_REOPEN:
        (void)snprintf(dead, sizeof(dead), "x%u", j->slot);
        args_reopen(b, j->slot, dead);
        send_step(m, "blockdev-reopen", b);
        return;
    case CUT_REOPEN + 1:
        args_label(b, "node-name", m->letter[j->slot], j->slot, m->st.name[j->slot]);
        send_step(m, "blockdev-del", b);
        return;
    default: break;
    }
    set_slot(m, j->slot, GM_SLOT_CUT);
    job_end(m, 0, "");
}

/* A connection knows the size that the disk had when it was made: a second one takes its place. */
static void step_grow(struct mon *m, struct buf *b)
{
    struct mon_job *j = &m->job;
    char *now = &m->letter[j->slot], next = *now == 'n' ? 'm' : 'n', node[QEMU_LABEL_MAX];
    const char *name = m->st.name[j->slot];
    qemu_disk_label(next, j->slot, name, node);
    switch (j->step) {
    case 0: /* left by a monitor that was killed */
        args_label(b, "node-name", next, j->slot, name);
        send_step(m, "blockdev-del", b);
        return;
    case 1:
        qemu_disk_nbd_json(b, next, j->slot, name, j->path);
        send_step(m, "blockdev-add", b);
        return;
    case 2:
        args_reopen(b, j->slot, node);
        send_step(m, "blockdev-reopen", b);
        return;
    case 3:
        *now = next;
        buf_fmt(b, "{\"node-name\":\"d%u\",\"size\":%llu}", j->slot,
                (unsigned long long)j->cmd.size);
        send_step(m, "block_resize", b);
        return;
    case GROW_TIDY:
        args_label(b, "node-name", next, j->slot, name); /* the other one, by now */
        send_step(m, "blockdev-del", b);
        return;
    default: job_end(m, j->code, j->text);
    }
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
    case GM_OP_DISK_GROW: step_grow(m, &b); break;
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
    bool is_error_fine = j->op == MON_JOB_CLEAN ||
                         (j->op == GM_OP_DISK_CUT && j->step != CUT_REOPEN) ||
                         (j->op == GM_OP_DISK_GROW && (j->step == 0 || j->step == GROW_TIDY));
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
        if (j->op == GM_OP_DISK_GROW) { /* the node that is not used goes */
            j->code = -EIO;
            memcpy(j->text, text, sizeof(text));
            j->step = GROW_TIDY;
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

static bool is_volume(const struct gm_cmd *c)
{
    char letter = 0, label[QEMU_LABEL_MAX], id[GM_NAME_MAX];
    unsigned slot = 0;
    qemu_disk_label('c', c->slot, c->name, label);
    return qemu_disk_of_label(str_c(label), &letter, &slot, id);
}

void mon_job_start(struct mon *m, const struct gm_cmd *c)
{
    bool has_path = c->op == GM_OP_DISK_ADD || c->op == GM_OP_DISK_GROW;
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
    } else if ((has_path && !is_path(c)) ||
               (c->op == GM_OP_DISK_ADD && (!c->n_queues || !is_volume(c)))) {
        code = -EINVAL;
        refuse = "a disk needs a volume's id, a path and queues";
    } else if (c->op == GM_OP_DISK_ADD && m->st.slot[c->slot] != GM_SLOT_EMPTY) {
        code = -EEXIST;
        refuse = "the slot is in use";
    } else if ((c->op == GM_OP_DISK_DEL || c->op == GM_OP_DISK_CUT) &&
               m->st.slot[c->slot] == GM_SLOT_EMPTY) {
        code = -ENOENT;
        refuse = "the slot is empty";
    } else if (c->op == GM_OP_DISK_GROW && (m->st.slot[c->slot] != GM_SLOT_USED ||
                                            m->letter[c->slot] == 'c' || c->size == 0)) {
        code = -ENOENT;
        refuse = "no disk that grows this way is there";
    }
    if (refuse) {
        mon_result(m, c->head.seq, code, refuse);
        return;
    }
    m->job = (struct mon_job){.op = c->op, .slot = c->slot, .seq = c->head.seq, .cmd = *c};
    if (has_path) {
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
