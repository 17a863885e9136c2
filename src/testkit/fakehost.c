/* spx-fakehost: stands for compute, viperblock and vpcd in tests of the API. It reads wishes
 * from the store and reports, at once, what a host that works would report; nothing runs. Facts
 * of the host: 8 vCPUs, 16 GiB, x86_64, a handful of types.
 * What goes wrong is asked for by name: a snapshot described as "hold" stays pending, one
 * described as "fail" ends in error; a volume of 13 GiB is impaired until EnableVolumeIO; a
 * growth to 77 GiB goes on for ever, one to 78 GiB fails.
 * usage: spx-fakehost --config FILE [--slow-ms N] [--vcpus N]
 *   slow-ms: how long pending, stopping and shutting-down last (30)
 *   vcpus: of the host (8), with 2 GiB of memory each */
#include "base/log.h"
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "kv/kv.h"
#include "kv/view.h"
#include "model/config.h"
#include "model/instance.h"
#include "model/keys.h"
#include "model/network.h"
#include "model/node.h"
#include "model/obj.h"
#include "model/volume.h"
#include "net/rpc.h"
#include "net/service.h"

#include <errno.h>

LOG_MODULE("fakehost");

#define TURN_NS (10 * NS_PER_MS)

struct fakehost {
    struct service svc;
    struct config *cfg;
    struct kv *kv;
    struct view *view;
    struct rpc_server *compute;
    struct loop_timer *timer;
    uint64_t slow_ns, n_vcpus;
};

struct step {
    struct fakehost *h;
    struct arena *a;
};

static void put(struct step *s, struct str key, const struct rec_desc *d, const void *rec,
                struct str spec_key)
{
    AUTO_BUF b;
    struct err e = ERR_INIT;
    struct kv_item spec;
    buf_init(&b, KV_MAX_VALUE);
    if (kv_get(s->h->kv, s->a, spec_key, &spec, &e) < 0) {
        return; /* it went meanwhile */
    }
    const struct kv_cmp cmp = {spec_key, spec.mod_rev};
    const struct kv_op op = {.type = KV_PUT,
                             .key = key,
                             .value = rec_save(d, rec, &b, &e) == 0 ? buf_str(&b) : STR("")};
    if (kv_txn(s->h->kv, &cmp, 1, &op, 1, NULL, &e) < 0 && e.code != -EAGAIN) {
        log_warn_rl("fakehost.put_failed", KV_STR("key", key), KV_ERR(&e));
    }
}

static void unref(void *e)
{
    view_unref(e);
}

static const void *status_of(struct step *s, const char *kind, struct str account,
                             struct str id)
{
    view_lock(s->h->view);
    const struct view_entry *e = view_get(s->h->view, key_status(s->a, kind, account, id));
    if (e && arena_defer(s->a, unref, (void *)(uintptr_t)view_ref(e)) < 0) {
        view_unref(e);
        e = NULL;
    }
    view_unlock(s->h->view);
    return e ? e->obj : NULL;
}

static enum instance_state next_state(const struct instance *i,
                                      const struct instance_status *st)
{
    enum instance_state now = INSTANCE_PENDING;
    if (!st || instance_state_parse(st->state, &now) < 0) {
        return str_eqc(i->want, INSTANCE_WANT_TERMINATED) ? INSTANCE_TERMINATED
                                                          : INSTANCE_PENDING;
    }
    if (now == INSTANCE_TERMINATED) {
        return now;
    }
    if (str_eqc(i->want, INSTANCE_WANT_TERMINATED)) {
        return now == INSTANCE_SHUTTING_DOWN ? INSTANCE_TERMINATED : INSTANCE_SHUTTING_DOWN;
    }
    if (str_eqc(i->want, INSTANCE_WANT_STOPPED)) {
        return now == INSTANCE_STOPPING || now == INSTANCE_STOPPED ? INSTANCE_STOPPED
                                                                   : INSTANCE_STOPPING;
    }
    return now == INSTANCE_PENDING || now == INSTANCE_RUNNING ? INSTANCE_RUNNING
                                                              : INSTANCE_PENDING;
}

static void do_instance(struct step *s, const struct view_entry *e)
{
    const struct instance *i = e->obj;
    const struct instance_status *st = status_of(s, "instance", i->account, i->id);
    enum instance_state next = next_state(i, st);
    bool is_same =
        st && str_eqc(st->state, instance_state_name(next)) && st->generation == i->generation;
    bool is_early = st && st->generation == i->generation &&
                    time_wall_ns() < st->changed_ns + s->h->slow_ns;
    if (is_same || is_early) {
        return;
    }
    struct instance_status rec = {
        .id = i->id,
        .generation = i->generation,
        .state = str_c(instance_state_name(next)),
        .n_reboots = i->n_reboots,
        .changed_ns = time_wall_ns(),
        .accel = STR("fake"),
        .instance_check = STR("ok"),
        .system_check = STR("ok"),
    };
    put(s, key_status(s->a, "instance", i->account, i->id), &instance_status_desc, &rec,
        e->key);
}

static void do_attachment(struct step *s, const struct volume *v, struct str spec_key)
{
    const struct attachment_status *st = status_of(s, "attachment", v->account, v->id);
    if (v->instance_id.n == 0 ||
        (st && st->generation == v->generation && str_eq(st->instance_id, v->instance_id))) {
        return;
    }
    struct attachment_status rec = {
        .volume_id = v->id,
        .instance_id = v->instance_id,
        .generation = v->generation,
        .state = str_eqc(v->attach_want, "detached") ? STR("detached") : STR("attached"),
        .changed_ns = time_wall_ns(),
    };
    put(s, key_status(s->a, "attachment", v->account, v->id), &attachment_status_desc, &rec,
        spec_key);
}

#define GIB_IMPAIRED 13u
#define GIB_ENDLESS  77u
#define GIB_FAILING  78u

static void do_snapshot(struct step *s, const struct view_entry *e)
{
    const struct snapshot *n = e->obj;
    const struct snapshot_status *st = status_of(s, "snapshot", n->account, n->id);
    struct snapshot_status rec = {.id = n->id, .generation = n->generation};
    struct str old = st ? st->state : STR("");
    if (str_eqc(n->want, "deleted")) {
        rec.state = STR("deleted");
    } else if (!st) {
        rec.state = STR("pending");
        rec.start_ns = time_wall_ns();
        rec.progress = 7;
    } else if (str_eqc(old, "pending") && !str_eqc(n->description, "hold") &&
               time_wall_ns() > st->start_ns + s->h->slow_ns) {
        rec.state = str_eqc(n->description, "fail") ? STR("error") : STR("completed");
        rec.reason = str_eqc(n->description, "fail") ? STR("the fake host failed it") : STR("");
        rec.start_ns = st->start_ns;
        rec.complete_ns = time_wall_ns();
        rec.progress = 100;
        rec.full_bytes = n->size_gib << 20;
        rec.new_bytes = n->size_gib << 20;
    } else {
        return;
    }
    if (!str_eq(old, rec.state)) {
        put(s, key_status(s->a, "snapshot", n->account, n->id), &snapshot_status_desc, &rec,
            e->key);
    }
}

static void do_volmod(struct step *s, const struct view_entry *e)
{
    const struct volume_mod *m = e->obj;
    const struct volume_mod_status *st = status_of(s, "volmod", m->account, m->id);
    uint64_t now = time_wall_ns(), since = now - MIN(now, m->start_ns);
    struct volume_mod_status rec = {
        .id = m->id, .generation = m->generation, .state = STR("modifying"), .progress = 1};
    if (m->size_gib == GIB_ENDLESS || since < s->h->slow_ns) {
        rec.progress = 2;
    } else if (m->size_gib == GIB_FAILING) {
        rec.state = STR("failed");
        rec.reason = STR("the fake host failed it");
    } else if (since < 2 * s->h->slow_ns) {
        rec.state = STR("optimizing");
        rec.progress = 50;
    } else {
        rec.state = STR("completed");
        rec.progress = 100;
        rec.end_ns = now;
    }
    if (!st || st->generation != m->generation || !str_eq(st->state, rec.state)) {
        put(s, key_status(s->a, "volmod", m->account, m->id), &volume_mod_status_desc, &rec,
            e->key);
    }
}

static void do_volume(struct step *s, const struct view_entry *e)
{
    const struct volume *v = e->obj;
    const struct volume_status *st = status_of(s, "volume", v->account, v->id);
    struct str want = str_eqc(v->want, "deleted") ? STR("deleted") : STR("available");
    bool is_impaired = v->size_gib == GIB_IMPAIRED && v->io_enabled_ns == 0;
    struct str health = is_impaired ? STR("impaired") : STR("ok");
    if (!st || !str_eq(st->state, want) || !str_eq(st->health, health)) {
        struct volume_status rec = {.id = v->id,
                                    .generation = v->generation,
                                    .state = want,
                                    .health = health,
                                    .fault = is_impaired ? STR("sync-failed") : STR(""),
                                    .fault_ns = is_impaired ? v->create_ns : 0,
                                    .size_gib = v->size_gib};
        put(s, key_status(s->a, "volume", v->account, v->id), &volume_status_desc, &rec,
            e->key);
    }
    do_attachment(s, v, e->key);
}

static void do_eni(struct step *s, const struct view_entry *e)
{
    const struct eni *n = e->obj;
    const struct eni_status *st = status_of(s, "eni", n->account, n->id);
    if (!st || st->generation != n->generation) {
        struct eni_status rec = {
            .id = n->id, .generation = n->generation, .state = STR("ready")};
        put(s, key_status(s->a, "eni", n->account, n->id), &eni_status_desc, &rec, e->key);
    }
}

static void do_image(struct step *s, const struct view_entry *e)
{
    const struct image *i = e->obj;
    const struct image_status *st = status_of(s, "image", i->account, i->id);
    struct str want = str_eqc(i->want, "deleted") ? STR("deregistered") : STR("available");
    if (!st || !str_eq(st->state, want)) {
        struct image_status rec = {.id = i->id, .state = want};
        put(s, key_status(s->a, "image", i->account, i->id), &image_status_desc, &rec, e->key);
    }
}

static void walk(struct fakehost *h, struct str prefix,
                 void (*one)(struct step *, const struct view_entry *))
{
    AUTO(arena_freep) struct arena *a = arena_new(256u << 20);
    struct step s = {h, a};
    const struct view_entry *all[4096];
    size_t n = 0;
    view_lock(h->view);
    omap_foreach_prefix(node, view_map(h->view), prefix)
    {
        const struct view_entry *e = omap_value(node);
        if (e->obj && n < ARRAY_LEN(all)) {
            all[n++] = view_ref(e);
        }
    }
    view_unlock(h->view);
    for (size_t i = 0; i < n; i++) {
        one(&s, all[i]);
        view_unref(all[i]);
    }
}

static void turn(void *ctx)
{
    struct fakehost *h = ctx;
    walk(h, STR("spec/instance/"), do_instance);
    walk(h, STR("spec/volume/"), do_volume);
    walk(h, STR("spec/eni/"), do_eni);
    walk(h, STR("spec/image/"), do_image);
    walk(h, STR("spec/snapshot/"), do_snapshot);
    walk(h, STR("spec/volmod/"), do_volmod);
    loop_timer_set(h->timer, time_mono_ns() + TURN_NS);
}

/* One image that everybody may use, and the facts of the host. */
static int put_facts(struct fakehost *h, struct err *err)
{
    static struct instance_type types[] = {
        {.name = STR("t3.nano"), .n_vcpus = 2, .memory_mib = 512, .is_burstable = true},
        {.name = STR("t3.micro"), .n_vcpus = 2, .memory_mib = 1024, .is_burstable = true},
        {.name = STR("t3.small"), .n_vcpus = 2, .memory_mib = 2048, .is_burstable = true},
        {.name = STR("c6i.large"), .n_vcpus = 2, .memory_mib = 4096},
        {.name = STR("c6i.xlarge"), .n_vcpus = 4, .memory_mib = 8192},
        {.name = STR("m6i.large"), .n_vcpus = 2, .memory_mib = 8192},
    };
    struct node_facts f = {
        .name = str_c(h->cfg->node),
        .ip = str_c(h->cfg->host),
        .region = str_c(h->cfg->region),
        .az = str_c(h->cfg->az),
        .arch = STR("x86_64"),
        .cpu_vendor = STR("Intel"),
        .cpu_model = STR("fake"),
        .n_cpus = h->n_vcpus,
        .memory_mib = h->n_vcpus * 2048,
        .usable_vcpus = h->n_vcpus,
        .usable_memory_mib = h->n_vcpus * 2048,
        .accel = STR("fake"),
        .types = {types, ARRAY_LEN(types)},
        .changed_ns = time_wall_ns(),
    };
    struct image image = {
        .id = STR("ami-00000000000000001"),
        .account = STR("000000000000"),
        .name = STR("mini"),
        .description = STR("a small image"),
        .arch = STR("x86_64"),
        .boot_mode = STR("bios"),
        .root_device = STR("/dev/sda1"),
        .snapshot_id = STR("snap-00000000000000001"),
        .size = UINT64_C(2) << 30,
        .create_ns = time_wall_ns(),
        .is_public = true,
        .want = STR("present"),
    };
    struct snapshot snap = {
        .id = image.snapshot_id,
        .account = image.account,
        .description = STR("mini"),
        .generation = 1,
        .want = STR("present"),
        .source = STR("image"),
        .volume_id = STR("vol-ffffffff"),
        .image_id = image.id,
        .size_gib = image.size >> 30,
        .size = image.size,
        .create_ns = image.create_ns,
    };
    AUTO(arena_freep) struct arena *a = arena_new(1u << 20);
    AUTO_BUF facts;
    AUTO_BUF img;
    AUTO_BUF sn;
    buf_init(&facts, KV_MAX_VALUE);
    buf_init(&img, KV_MAX_VALUE);
    buf_init(&sn, KV_MAX_VALUE);
    int r = rec_save(&node_facts_desc, &f, &facts, err);
    if (r < 0 || (r = rec_save(&image_desc, &image, &img, err)) < 0 ||
        (r = rec_save(&snapshot_desc, &snap, &sn, err)) < 0) {
        return r;
    }
    const struct kv_op ops[] = {
        {.type = KV_PUT,
         .key = arena_fmt(a, "node/%s/facts", h->cfg->node),
         .value = buf_str(&facts)},
        {.type = KV_PUT,
         .key = key_spec(a, "image", image.account, image.id),
         .value = buf_str(&img)},
        {.type = KV_PUT,
         .key = key_spec(a, "snapshot", snap.account, snap.id),
         .value = buf_str(&sn)},
    };
    return kv_txn(h->kv, NULL, 0, ops, ARRAY_LEN(ops), NULL, err);
}

static void on_request(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                       int *fds, size_t n_fds)
{
    struct fakehost *h = ctx;
    for (size_t i = 0; i < n_fds; i++) {
        close(fds[i]);
    }
    if (service_admin_handle(&h->svc, method, payload, req)) {
        return;
    }
    struct err e = ERR_INIT;
    if (str_eqc(method, "console.get")) {
        rpc_reply(
            req,
            STR("{\"text\":\"aGVsbG8gZnJvbSB0aGUgZ3Vlc3QK\",\"taken_ns\":1440938160000000000}"),
            NULL, 0);
        return;
    }
    fail(&e, -ENOSYS, "UnknownMethod", "no such method");
    rpc_reply_err(req, &e);
}

static int start(struct fakehost *h, struct err *err)
{
    static const char *const prefixes[] = {"spec/", "status/"};
    static const struct view_ops ops = {.parse = model_parse, .free = model_free};
    static const struct rpc_server_ops rpc = {.on_request = on_request};
    AUTO(arena_freep) struct arena *a = arena_new(1u << 16);
    int r = config_load(h->svc.config_path, &h->cfg, err);
    if (r < 0 ||
        (r = kv_open_remote_as(config_run_path(a, h->cfg, "state.sock"), "admin", &h->kv,
                               err)) < 0 ||
        (r = view_open(h->kv, prefixes, ARRAY_LEN(prefixes), &ops, h, 30 * NS_PER_S, &h->view,
                       err)) < 0 ||
        (r = put_facts(h, err)) < 0 ||
        (r = rpc_server_new(h->svc.loop, config_run_path(a, h->cfg, "compute.sock"), 0666, &rpc,
                            h, &h->compute, err)) < 0) {
        return r;
    }
    h->timer = loop_timer_new(h->svc.loop, turn, h);
    loop_timer_set(h->timer, time_mono_ns());
    return 0;
}

int main(int argc, char **argv)
{
    static struct fakehost h;
    const char *slow = "30", *vcpus = "8";
    const struct service_arg args[] = {
        {"--slow-ms", "N  how long states on the way last", &slow},
        {"--vcpus", "N  of the host", &vcpus}};
    struct err e = ERR_INIT;
    int status = 0;
    uint64_t ms = 0;
    if (service_start(&h.svc, "spx-fakehost", argc, argv, args, ARRAY_LEN(args), &status) !=
        0) {
        return status;
    }
    if (num_u64(str_c(slow), 60000, &ms) < 0 ||
        num_u64(str_c(vcpus), 1u << 20, &h.n_vcpus) < 0 || h.n_vcpus == 0) {
        return 2;
    }
    h.slow_ns = ms * NS_PER_MS;
    status = start(&h, &e) < 0 ? service_failed(&h.svc, &e) : service_run(&h.svc);
    loop_timer_free(h.timer);
    if (h.compute) {
        rpc_server_free(h.compute);
    }
    if (h.view) {
        view_close(h.view);
    }
    kv_close(h.kv);
    config_free(h.cfg);
    service_done(&h.svc);
    return status;
}
