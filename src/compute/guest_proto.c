#include "compute/guest_proto.h"
#include <errno.h>
#include <string.h>

static void head_init(struct gm_head *h, enum gm_type type, uint32_t seq, size_t size)
{
    h->magic = GM_MAGIC;
    h->version = GM_VERSION;
    h->type = (uint16_t)type;
    h->seq = seq;
    h->size = (uint32_t)size;
}

void gm_cmd_init(struct gm_cmd *c, enum gm_op op, uint32_t seq)
{
    memset(c, 0, sizeof(*c));
    head_init(&c->head, GM_CMD, seq, sizeof(*c));
    c->op = (uint32_t)op;
}

/* Texts come from QEMU: what is not printable ASCII becomes '?', so that it can go to logs and
 * records. */
static void copy_text(char *to, size_t size, const char *from)
{
    size_t n = 0;
    for (; from && from[n] && n + 1 < size; n++) {
        to[n] = from[n] >= ' ' && from[n] <= '~' ? from[n] : '?';
    }
    to[n] = '\0';
}

void gm_result_init(struct gm_result *r, uint32_t seq, int code, const char *text)
{
    memset(r, 0, sizeof(*r));
    head_init(&r->head, GM_RESULT, seq, sizeof(*r));
    r->code = code;
    copy_text(r->text, sizeof(r->text), text);
}

void gm_state_init(struct gm_state *s)
{
    memset(s, 0, sizeof(*s));
    head_init(&s->head, GM_STATE, 0, sizeof(*s));
    s->phase = GM_PHASE_STARTING;
}

static bool head_fits(const union gm_msg *m, size_t n, enum gm_type type, size_t size)
{
    return n == size && m->head.magic == GM_MAGIC && m->head.version == GM_VERSION &&
           m->head.type == type && m->head.size == size;
}

static bool is_text(const char *s, size_t size)
{
    for (size_t i = 0; i < size; i++) {
        if (s[i] == '\0') {
            return true;
        }
        if (s[i] < ' ' || s[i] > '~') {
            return false;
        }
    }
    return false;
}

int gm_cmd_check(const union gm_msg *m, size_t n)
{
    if (n < sizeof(m->head) || !head_fits(m, n, GM_CMD, sizeof(m->cmd))) {
        return -EPROTO;
    }
    const struct gm_cmd *c = &m->cmd;
    if (c->op == 0 || c->op >= GM_OP_N || c->slot >= GM_N_DISKS || c->n_queues > 255 ||
        c->is_nbd > 1 || c->data_n > sizeof(c->data) || !is_text(c->name, sizeof(c->name))) {
        return -EPROTO;
    }
    return 0;
}

static int state_check(const struct gm_state *s)
{
    if (s->phase == 0 || s->phase >= GM_PHASE_N || s->exit >= GM_EXIT_N || s->is_qmp_ok > 1 ||
        s->is_panicked > 1 || s->is_adopted > 1 || s->is_driver_ok > 1 || s->qemu_pid < 0 ||
        !is_text(s->text, sizeof(s->text))) {
        return -EPROTO;
    }
    if ((s->phase == GM_PHASE_EXITED) != (s->exit != GM_EXIT_NONE)) {
        return -EPROTO;
    }
    for (unsigned i = 0; i < GM_N_DISKS; i++) {
        if (s->slot[i] >= GM_SLOT_N || s->is_busy[i] > 1 ||
            !is_text(s->name[i], sizeof(s->name[i]))) {
            return -EPROTO;
        }
    }
    return 0;
}

int gm_answer_check(const union gm_msg *m, size_t n)
{
    if (n < sizeof(m->head)) {
        return -EPROTO;
    }
    if (head_fits(m, n, GM_RESULT, sizeof(m->result))) {
        const struct gm_result *r = &m->result;
        return r->code <= 0 && r->code > -4096 && is_text(r->text, sizeof(r->text)) ? 0
                                                                                    : -EPROTO;
    }
    if (head_fits(m, n, GM_STATE, sizeof(m->state))) {
        return state_check(&m->state);
    }
    return -EPROTO;
}
