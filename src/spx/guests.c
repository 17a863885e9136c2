#include "spx/guests.h"
#include "base/time.h"
#include "model/instance.h"
#include "model/keys.h"
#include "spx/data.h"
#include <errno.h>
#include <stdio.h>
#include <time.h>

#define TRIES    8
#define POLL_NS  250000000L
#define MAX_TEXT (1u << 20)

static bool is_ours_and_wanted(const struct spx *s, const struct instance *x)
{
    return str_eqc(x->node, s->cfg->node) && str_eqc(x->want, INSTANCE_WANT_RUNNING) &&
           x->terminated_ns == 0;
}

/* What StopInstances writes, with the host as the reason. */
static int ask_to_stop(struct spx *s, struct str key, struct err *err)
{
    for (int i = 0; i < TRIES; i++) {
        AUTO(arena_freep) struct arena *a = arena_new(4 * MAX_TEXT);
        AUTO_BUF text;
        struct kv_item item;
        struct instance x;
        struct err e = ERR_INIT;
        char now[TIME_ISO_SIZE];
        int r = kv_get(s->kv, a, key, &item, err);
        r = r < 0 ? r : rec_load(&instance_desc, a, item.value, &x, err);
        if (r < 0 || !is_ours_and_wanted(s, &x)) {
            return r;
        }
        time_iso_s(time_wall_ns(), now);
        x.want = STR(INSTANCE_WANT_STOPPED);
        x.is_forced = false;
        x.generation++;
        x.transition_reason = arena_fmt(a, "Host shut down (%.10s %.8s GMT)", now, now + 11);
        x.reason_code = STR("Server.ScheduledStop");
        x.reason_message = STR("Server.ScheduledStop: The host was shut down");
        buf_init(&text, MAX_TEXT);
        r = rec_save(&instance_desc, &x, &text, err);
        if (r < 0) {
            return r;
        }
        const struct kv_cmp cmp = {.key = key, .mod_rev = item.mod_rev};
        const struct kv_op op = {.type = KV_PUT, .key = key, .value = buf_str(&text)};
        r = kv_txn(s->kv, &cmp, 1, &op, 1, NULL, &e);
        if (r != -EAGAIN) {
            return r < 0 ? fail(err, r, e.name, "%s", e.msg) : 0;
        }
    }
    return fail(err, -EAGAIN, "TxnConflict", "%.*s is changed all the time", STR_ARG(key));
}

/* Those of this node that neither are stopped nor over. */
static int count_running(struct spx *s, uint64_t *ret, struct str *ret_one, struct err *err)
{
    struct recs specs, statuses;
    int r = data_load(s, "spec/instance/", &instance_desc, &specs, err);
    r = r < 0 ? r : data_load(s, "status/instance/", &instance_status_desc, &statuses, err);
    *ret = 0;
    for (size_t i = 0; r == 0 && i < specs.n; i++) {
        const struct instance *x = recs_at(&specs, struct instance, i);
        const struct instance_status *st = data_find(&statuses, x->id);
        bool is_off = st &&
                      (str_eqc(st->state, "stopped") || str_eqc(st->state, "terminated")) &&
                      st->generation >= x->generation;
        if (str_eqc(x->node, s->cfg->node) && x->terminated_ns == 0 && !is_off) {
            (*ret)++;
            *ret_one = x->id;
        }
    }
    return r;
}

int guests_stop(struct spx *s, uint64_t limit_ns, struct err *err)
{
    struct recs specs;
    uint64_t n = 0, n_left = 0, end = time_mono_ns() + limit_ns;
    struct str one = STR_NONE;
    int r = data_load(s, "spec/instance/", &instance_desc, &specs, err);
    for (size_t i = 0; r == 0 && i < specs.n; i++) {
        if (is_ours_and_wanted(s, recs_at(&specs, struct instance, i))) {
            r = ask_to_stop(s, specs.keys[i], err);
            n++;
        }
    }
    if (r < 0) {
        return r;
    }
    if (n > 0) {
        fprintf(stderr, "%llu guests are being shut down\n", (unsigned long long)n);
    }
    do {
        struct arena *whole = s->arena;
        AUTO(arena_freep) struct arena *a = arena_new(64u << 20); /* of this look only */
        s->arena = a;
        r = count_running(s, &n_left, &one, err);
        s->arena = whole;
        if (r < 0 || n_left == 0) {
            return r;
        }
        one = arena_str_dup(whole, one);
        const struct timespec wait = {.tv_nsec = POLL_NS};
        nanosleep(&wait, NULL);
    } while (time_mono_ns() < end);
    return fail(err, -ETIMEDOUT, "GuestsRun", "%llu guests still run (%.*s)",
                (unsigned long long)n_left, STR_ARG(one));
}
