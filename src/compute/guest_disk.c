/* Volumes of one guest, level-triggered: each pass compares what is wanted with what sits in
 * the slot. */
#include "base/log.h"
#include "base/time.h"
#include "compute/compute_int.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

LOG_MODULE("compute.disk");

#define RETRY_MIN_NS (UINT64_C(1) * NS_PER_S)
#define RETRY_MAX_NS (UINT64_C(30) * NS_PER_S)
#define BUSY_PAUSE   (UINT64_C(100) * NS_PER_MS)

const char *const disk_state_names[DISK_STATE_N] = {"attaching", "attached", "detaching",
                                                    "detached", "busy"};

static void set_state(struct guest *g, struct guest_disk *d, enum disk_state state,
                      const char *reason)
{
    if (d->state == state && strcmp(d->reason, reason) == 0) {
        return;
    }
    log_info("attachment.state", KV_CSTR("instance", g->id), KV_CSTR("volume", d->id),
             KV_CSTR("from", disk_state_names[d->state]),
             KV_CSTR("to", disk_state_names[state]), KV_U64("slot", d->slot),
             KV_CSTR("reason", reason));
    d->state = state;
    (void)snprintf(d->reason, sizeof(d->reason), "%s", reason);
    d->is_dirty = true;
    guest_mark(g);
}

static struct guest_disk *find(struct guest *g, const char *id)
{
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        if (strcmp(g->disk[i].id, id) == 0) {
            return &g->disk[i];
        }
    }
    return NULL;
}

void guest_disks_begin(struct guest *g)
{
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        g->disk[i].is_named = false;
    }
}

/* The record of an earlier life of this service: the slot and where we were. */
static void take_record(struct guest *g, struct guest_disk *d,
                        const struct attachment_status *st)
{
    if (!st || !str_eqc(st->instance_id, g->id)) {
        return;
    }
    for (unsigned i = 0; i < DISK_STATE_N; i++) {
        if (str_eqc(st->state, disk_state_names[i])) {
            d->state = (enum disk_state)i;
        }
    }
    d->generation = st->generation;
    d->slot = d->state != DISK_DETACHED && st->slot < GM_N_DISKS ? st->slot : DISK_NO_SLOT;
    d->is_dirty = false;
    (void)snprintf(d->reason, sizeof(d->reason), "%.*s", STR_ARG(st->reason));
}

void guest_disk_spec(struct guest *g, const struct volume *v, const struct volume_status *st,
                     const struct attachment_status *at)
{
    char id[GM_NAME_MAX];
    if (v->id.n >= sizeof(id)) {
        return;
    }
    (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(v->id));
    struct guest_disk *d = find(g, id);
    bool is_wanted = str_eqc(v->attach_want, "attached") && str_eqc(v->want, "present");
    if (!d) {
        d = find(g, "");
        if (!d) {
            log_warn_rl("disk.too_many", KV_CSTR("instance", g->id), KV_CSTR("volume", id));
            return;
        }
        *d = (struct guest_disk){
            .slot = DISK_NO_SLOT, .is_dirty = true, .state = DISK_ATTACHING};
        (void)snprintf(d->id, sizeof(d->id), "%s", id);
        take_record(g, d, at);
        g->is_dirty = g->is_dirty || d->is_dirty;
    }
    const struct instance *s = guest_spec(g);
    d->is_named = true;
    if (d->is_wanted != is_wanted) {
        d->retry_ns = 0;
        d->n_tries = 0;
    }
    d->is_wanted = is_wanted;
    d->is_forced = v->is_detach_forced;
    d->is_root = s && s->root_device.n > 0 && str_eq(v->device, s->root_device);
    d->size = st ? st->size_gib << 30 : 0;
    (void)snprintf(d->device, sizeof(d->device), "%.*s", STR_ARG(v->device));
    d->is_ready = st && str_eqc(st->state, "available");
    bool is_hopeless = st && (str_eqc(st->state, "error") || str_eqc(st->state, "deleted"));
    (void)snprintf(d->trouble, sizeof(d->trouble), "%.*s",
                   STR_ARG(!is_hopeless               ? STR("")
                           : str_is_empty(st->reason) ? st->state
                                                      : st->reason));
    if (d->generation != v->generation) {
        d->generation = v->generation;
        d->is_dirty = true;
        guest_mark(g);
    }
}

static bool is_slot_free(const struct guest *g, uint64_t slot)
{
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        if (g->disk[i].id[0] && g->disk[i].slot == slot) {
            return false;
        }
    }
    return !g->has_state || g->mon.slot[slot] == GM_SLOT_EMPTY;
}

/* Slot 0 is the root's; others follow in the order of their device names, and keep theirs over
 * stop and start. */
void guest_disks_assign(struct guest *g)
{
    for (;;) {
        struct guest_disk *best = NULL;
        for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
            struct guest_disk *d = &g->disk[i];
            if (!d->id[0] || !d->is_wanted || d->slot != DISK_NO_SLOT) {
                continue;
            }
            if (!best || (d->is_root && !best->is_root) ||
                (d->is_root == best->is_root && strcmp(d->device, best->device) < 0)) {
                best = d;
            }
        }
        if (!best) {
            return;
        }
        for (uint64_t slot = best->is_root ? 0 : 1;
             slot < GM_N_DISKS && best->slot == DISK_NO_SLOT; slot++) {
            if (is_slot_free(g, slot)) {
                best->slot = slot;
                best->is_dirty = true;
                guest_mark(g);
            }
        }
        if (best->slot == DISK_NO_SLOT) {
            set_state(g, best, DISK_ATTACHING, "all slots for disks are in use");
            return;
        }
    }
}

enum vm_ready guest_disks_ready(struct guest *g, char *why, size_t size)
{
    bool has_root = false;
    const struct instance *s = guest_spec(g);
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        const struct guest_disk *d = &g->disk[i];
        if (!d->id[0] || !d->is_wanted) {
            continue;
        }
        if (d->trouble[0]) {
            (void)snprintf(why, size, "volume %s: %.180s", d->id, d->trouble);
            return VM_READY_FAILED;
        }
        if (!d->is_ready) {
            (void)snprintf(why, size, "the volume %s was not ready in time", d->id);
            return VM_READY_WAIT;
        }
        has_root = has_root || d->is_root;
    }
    if (!has_root) {
        (void)snprintf(why, size, "no volume is attached as the root device %.*s",
                       STR_ARG(s->root_device));
        return VM_READY_WAIT;
    }
    return VM_READY_YES;
}

static void retry_later(struct guest *g, struct guest_disk *d)
{
    uint64_t pause = RETRY_MIN_NS << MIN(d->n_tries, 5u);
    d->n_tries += d->n_tries < 16 ? 1 : 0;
    d->retry_ns = loop_now_ns(g->c->o.loop) + MIN(pause, RETRY_MAX_NS);
}

/* Over vhost-user the block service tells the guest by itself. QEMU must be told of NBD disks: by
 * way of a new connection, whose path is known from opening it or is asked for once more. */
static void step_grow(struct guest *g, struct guest_disk *d, uint64_t now_ns)
{
    if (g->c->o.host->is_kvm || d->size == 0 || d->size == d->shown_size || d->is_opening ||
        now_ns < d->retry_ns) {
        return;
    }
    if (!d->path[0]) {
        d->is_opening = true;
        launch_open_disk(g, d);
        return;
    }
    struct gm_cmd args = {.slot = (uint32_t)d->slot,
                          .size = d->size,
                          .data_n = (uint32_t)MIN(strlen(d->path), sizeof(args.data))};
    memcpy(args.data, d->path, args.data_n);
    if (guest_command(g, GM_OP_DISK_GROW, &args)) {
        d->shown_size = d->size;
    }
}

static void step_wanted(struct guest *g, struct guest_disk *d, uint64_t now_ns)
{
    if (g->proc == VM_PROC_NONE) {
        if (g->fsm.state != INSTANCE_TERMINATED) {
            set_state(g, d, DISK_ATTACHED, ""); /* the next start opens it */
        }
        return;
    }
    switch (g->mon.slot[d->slot]) {
    case GM_SLOT_USED:
        if (strcmp(g->mon.name[d->slot], d->id) == 0) {
            d->n_tries = 0;
            set_state(g, d, DISK_ATTACHED, "");
            step_grow(g, d, now_ns);
        } else {
            d->slot = DISK_NO_SLOT; /* another volume sits there */
        }
        return;
    case GM_SLOT_CUT:
        d->slot = DISK_NO_SLOT; /* a dead device sits there until the guest lets go */
        return;
    case GM_SLOT_LEAVING: return;
    default: break;
    }
    if (d->trouble[0] || !d->is_ready) {
        set_state(g, d, DISK_ATTACHING, d->trouble);
        return;
    }
    if (d->state != DISK_ATTACHING) {
        set_state(g, d, DISK_ATTACHING, "");
    }
    if (!d->is_opening && !d->is_closing && now_ns >= d->retry_ns) {
        d->is_opening = true;
        d->is_cut = false;
        launch_open_disk(g, d);
    }
}

/* What the guest does not hold any more goes back to the block service: only then another
 * instance may have it. */
static void give_back(struct guest *g, struct guest_disk *d, uint64_t now_ns)
{
    if (now_ns >= d->retry_ns) {
        d->is_closing = true;
        launch_close_disk(g, d);
    }
}

static void set_gone(struct guest *g, struct guest_disk *d)
{
    set_state(g, d, DISK_DETACHED, "");
    d->slot = DISK_NO_SLOT;
    if (!d->is_named) {
        memset(d, 0, sizeof(*d)); /* not ours to report any more */
    }
}

static void step_unwanted(struct guest *g, struct guest_disk *d, uint64_t now_ns)
{
    uint8_t at = GM_SLOT_EMPTY;
    if (g->proc != VM_PROC_NONE && d->slot < GM_N_DISKS &&
        strcmp(g->mon.name[d->slot], d->id) == 0) {
        at = g->mon.slot[d->slot];
    }
    if (d->is_opening || d->is_closing) {
        return; /* what was begun ends first */
    }
    if (at == GM_SLOT_EMPTY || at == GM_SLOT_CUT) {
        /* A guest that is off holds nothing, and a slot that was never plugged neither. */
        bool is_held = g->proc != VM_PROC_NONE && !d->is_cut && d->state != DISK_DETACHED;
        if (is_held) {
            give_back(g, d, now_ns);
        } else {
            set_gone(g, d);
        }
        return;
    }
    bool is_busy = g->mon.is_busy[d->slot] != 0;
    if (d->state != DISK_DETACHING && d->state != DISK_BUSY) {
        set_state(g, d, DISK_DETACHING, "");
        d->retry_ns = d->ask_ns = 0;
    } else if (is_busy != (d->state == DISK_BUSY)) {
        set_state(g, d, is_busy ? DISK_BUSY : DISK_DETACHING,
                  is_busy ? "the guest refused to let it go" : "");
    }
    struct gm_cmd args = {.slot = (uint32_t)d->slot, .size = MAX(d->size, (uint64_t)1 << 30)};
    bool is_by_force = d->is_forced || !d->is_named;
    if (is_by_force && !d->is_cut && g->c->o.host->is_kvm) {
        give_back(g, d, now_ns); /* the block service answers with errors from then on */
    } else if (is_by_force || d->is_cut) {
        (void)guest_command(g, GM_OP_DISK_CUT, &args);
    } else if (now_ns >= d->retry_ns && now_ns >= d->ask_ns &&
               guest_command(g, GM_OP_DISK_DEL, &args)) {
        d->ask_ns = now_ns + g->c->o.detach_ns;
    }
}

void guest_disks_step(struct guest *g)
{
    uint64_t now_ns = loop_now_ns(g->c->o.loop);
    bool is_up = g->proc == VM_PROC_RUNNING && g->has_state && g->mon.phase == GM_PHASE_RUNNING;
    if (g->proc != VM_PROC_NONE && !is_up) {
        return;
    }
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        struct guest_disk *d = &g->disk[i];
        if (!d->id[0]) {
            continue;
        }
        if (!d->is_named) {
            d->is_wanted = false;
        }
        if (!d->is_wanted) {
            step_unwanted(g, d, now_ns);
        } else if (d->slot != DISK_NO_SLOT) {
            step_wanted(g, d, now_ns);
        }
    }
}

/* The socket is there (or 'path' is NULL and *err says why not). */
void guest_disk_opened(struct guest *g, const char *id, const char *path, uint64_t size,
                       const struct err *err)
{
    struct guest_disk *d = find(g, id);
    if (!d) {
        return;
    }
    d->is_opening = false;
    if (!path) {
        set_state(g, d, DISK_ATTACHING, err->msg);
        retry_later(g, d);
        return;
    }
    bool is_up = g->proc == VM_PROC_RUNNING && g->has_state && g->mon.phase == GM_PHASE_RUNNING;
    (void)snprintf(d->path, sizeof(d->path), "%s", path);
    if (!is_up || !d->is_wanted || d->slot >= GM_N_DISKS ||
        g->mon.slot[d->slot] != GM_SLOT_EMPTY) {
        return; /* things changed meanwhile: the next pass decides */
    }
    const struct instance *s = guest_spec(g);
    struct gm_cmd args = {.slot = (uint32_t)d->slot,
                          .is_nbd = !g->c->o.host->is_kvm,
                          .n_queues = (uint32_t)qemu_disk_queues(s ? s->n_vcpus : 1),
                          .data_n = (uint32_t)MIN(strlen(path), sizeof(args.data))};
    memcpy(args.name, d->id, sizeof(args.name));
    memcpy(args.data, path, args.data_n);
    if (guest_command(g, GM_OP_DISK_ADD, &args)) {
        d->is_opening = true;
        d->shown_size = size;
    } else {
        d->retry_ns = loop_now_ns(g->c->o.loop) + BUSY_PAUSE;
    }
}

void guest_disk_started(struct guest *g, const char *id, const char *path, uint64_t size)
{
    struct guest_disk *d = id[0] ? find(g, id) : NULL;
    if (d) {
        (void)snprintf(d->path, sizeof(d->path), "%s", path);
        d->shown_size = size;
    }
}

void guest_disk_closed(struct guest *g, const char *id, const struct err *err)
{
    struct guest_disk *d = find(g, id);
    if (!d) {
        return;
    }
    d->is_closing = false;
    if (err->code < 0) {
        log_warn_rl("disk.not_closed", KV_CSTR("instance", g->id), KV_CSTR("volume", id),
                    KV_ERR(err));
        retry_later(g, d);
    } else {
        d->is_cut = true;
        d->retry_ns = 0;
        d->n_tries = 0;
    }
}

void guest_disk_result(struct guest *g, uint32_t op, unsigned slot, int code, const char *text)
{
    for (unsigned i = 0; i < GUEST_MAX_DISKS; i++) {
        struct guest_disk *d = &g->disk[i];
        if (!d->id[0] || d->slot != slot) {
            continue;
        }
        if (op == GM_OP_DISK_ADD) {
            d->is_opening = false;
        } else if (op == GM_OP_DISK_GROW && code != 0) {
            d->shown_size = 0; /* once more, from the path on */
            d->path[0] = '\0';
        }
        if (code == 0) {
            continue;
        }
        if (code == -EBUSY || code == -EAGAIN || code == -ECONNRESET) {
            d->retry_ns = loop_now_ns(g->c->o.loop) + BUSY_PAUSE;
            continue;
        }
        log_warn_rl("disk.failed", KV_CSTR("instance", g->id), KV_CSTR("volume", d->id),
                    KV_U64("op", op), KV_CSTR("error", text));
        if (op != GM_OP_DISK_GROW) {
            set_state(g, d, op == GM_OP_DISK_ADD ? DISK_ATTACHING : DISK_DETACHING, text);
        }
        retry_later(g, d);
    }
}
