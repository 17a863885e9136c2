#include "compute/compute_world.h"
#include "base/file.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "compute/spawn.h"
#include "model/config.h"
#include <errno.h>
#include <fcntl.h>
#include <linux/if.h>
#include <linux/if_tun.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

const char *state_exe, *compute_exe, *sector, *disk_server;

/* ---- the block and the network service, as far as compute sees them ---- */

static struct world *current;

static void disk_path(struct world *w, struct str volume, char path[PATH_MAX])
{
    char name[64];
    (void)snprintf(name, sizeof(name), "%.*s", STR_ARG(volume));
    (void)tmpdir_path(&w->dir, name, path);
}

static void socket_path(struct world *w, const struct json *args, char ret[PATH_MAX])
{
    char name[96];
    (void)snprintf(name, sizeof(name), "%.*s-%.*s", STR_ARG(json_get_str(args, "instance_id")),
                   STR_ARG(json_get_str(args, "volume_id")));
    (void)tmpdir_path(&w->dir, name, ret);
}

/* Servers of guests that are off give the volume back, as the block service sees to it. */
static void close_unused(struct world *w, const char *file)
{
    for (size_t i = 0; i < w->disks.n; i++) {
        char instance[32];
        const char *name = strrchr(w->disks.v[i].path, '/') + 1;
        (void)snprintf(instance, sizeof(instance), "%.19s", name);
        if (strcmp(w->disks.v[i].file, file) == 0 && !has_run_folder(w, instance)) {
            char path[108];
            memcpy(path, w->disks.v[i].path, sizeof(path));
            test_disk_close(&w->disks, path, false);
            i--;
        }
    }
}

static void on_block(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                     int *fds, size_t n_fds)
{
    struct world *w = ctx;
    AUTO(json_freep) struct json *j = NULL;
    char file[PATH_MAX], path[PATH_MAX], text[512], id[32];
    struct err err = ERR_INIT;
    assert_true(json_parse(payload, &j, NULL) == 0 && n_fds == 0);
    disk_path(w, json_get_str(j, "volume_id"), file);
    socket_path(w, j, path);
    if (str_eqc(method, "volume.close")) {
        test_disk_close(&w->disks, path, false);
        rpc_reply(req, STR("{}"), NULL, 0);
        return;
    }
    assert_true(str_eqc(method, "volume.open") && json_get_u64(j, "n_queues", 0) >= 1);
    assert_non_null(json_get(j, "uid"));
    assert_true(str_eqc(json_get_str(j, "transport"), "nbd")); /* --accel tcg */
    (void)snprintf(id, sizeof(id), "%.*s", STR_ARG(json_get_str(j, "volume_id")));
    test_disk_close(&w->disks, path, false);
    close_unused(w, file);
    if (atomic_load(&w->is_block_broken)) {
        (void)fail(&err, -EIO, "BrokenVolume", "the volume cannot be read");
    } else if (!test_disk_open(&w->disks, file, path, id)) {
        (void)fail(&err, -EBUSY, "VolumeInUse", "the volume is open elsewhere");
    } else {
        (void)snprintf(text, sizeof(text), "{\"path\":\"%.400s\"}", path);
        rpc_reply(req, str_c(text), NULL, 0);
        return;
    }
    rpc_reply_err(req, &err);
}

static int open_tap(struct world *w, unsigned n_queues, int *fds)
{
    struct ifreq ifr = {.ifr_flags = IFF_TAP | IFF_NO_PI | IFF_VNET_HDR};
    (void)snprintf(ifr.ifr_name, sizeof(ifr.ifr_name), "ct%u", atomic_fetch_add(&w->n_taps, 1));
    if (n_queues > 1) {
        ifr.ifr_flags |= IFF_MULTI_QUEUE;
    }
    for (unsigned i = 0; i < n_queues; i++) {
        fds[i] = open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK);
        if (fds[i] < 0 || ioctl(fds[i], TUNSETIFF, &ifr) < 0) {
            return -errno;
        }
    }
    return 0;
}

static void on_net(void *ctx, struct rpc_req *req, struct str method, struct str payload,
                   int *fds, size_t n_fds)
{
    struct world *w = ctx;
    AUTO(json_freep) struct json *j = NULL;
    int taps[16];
    assert_true(json_parse(payload, &j, NULL) == 0 && n_fds == 0);
    if (str_eqc(method, "eni.state")) {
        rpc_reply(req,
                  atomic_load(&w->is_link_down) ? STR("{\"is_link_up\":false}")
                                                : STR("{\"is_link_up\":true}"),
                  NULL, 0);
        return;
    }
    unsigned n = (unsigned)json_get_u64(j, "n_queues", 0);
    assert_true(n >= 1 && n <= 16);
    if (open_tap(w, n, taps) < 0) {
        struct err err = ERR_INIT;
        (void)fail(&err, -EPERM, "NoTap", "no tap: %m");
        rpc_reply_err(req, &err);
        return;
    }
    rpc_reply(req, STR("{\"mac\":\"02:00:00:00:00:01\",\"mtu\":9001,\"is_vnet_hdr\":true}"),
              taps, n);
    for (unsigned i = 0; i < n; i++) {
        close(taps[i]);
    }
}

static void *serve(void *ctx)
{
    struct world *w = ctx;
    loop_run(w->loop);
    return NULL;
}

/* ---- the world ---- */

void world_init(struct world *w, uint64_t uid_base)
{
    static const struct rpc_server_ops block_ops = {.on_request = on_block},
                                       net_ops = {.on_request = on_net};
    char text[1024], data[PATH_MAX], path[PATH_MAX];
    struct err err = ERR_INIT;
    *w = (struct world){.uid_base = uid_base, .disks = {.server = disk_server}};
    current = w;
    tmpdir_init(&w->dir, "comp");
    assert_int_equal(chmod(w->dir.path, 0775), 0);
    assert_int_equal(chown(w->dir.path, 0, (gid_t)uid_base),
                     0); /* what 'spx admin init' does */
    (void)tmpdir_path(&w->dir, "data", data);
    (void)tmpdir_path(&w->dir, "state.sock", w->state_sock);
    (void)tmpdir_path(&w->dir, "compute.sock", w->compute_sock);
    (void)snprintf(text, sizeof(text),
                   "version = 4\nnode = \"n1\"\n[nodes.n1]\nregion = \"r1\"\naz = "
                   "\"r1a\"\nuid_base = %llu\n"
                   "data_dir = \"%.150s\"\nrun_dir = \"%.150s\"\n",
                   (unsigned long long)uid_base, data, w->dir.path);
    (void)tmpdir_write(&w->dir, "spinifex.toml", text, w->config);
    (void)tmpdir_path(&w->dir, "data/state", path);
    assert_int_equal(file_mkdirs(path, 0711, NULL), 0);
    assert_int_equal(
        chown(path, (uid_t)(uid_base ? uid_base + CONFIG_UID_STATE : 0), (gid_t)-1), 0);
    w->loop = loop_new();
    assert_int_equal(rpc_server_new(w->loop, tmpdir_path(&w->dir, "viperblock.sock", path),
                                    0600, &block_ops, w, &w->block, &err),
                     0);
    assert_int_equal(rpc_server_new(w->loop, tmpdir_path(&w->dir, "vpcd.sock", path), 0600,
                                    &net_ops, w, &w->net, &err),
                     0);
    assert_int_equal(pthread_create(&w->thread, NULL, serve, w), 0);
    const char *const state_argv[] = {state_exe, "--config", w->config, NULL};
    memcpy(w->state_argv, state_argv, sizeof(state_argv));
    const char *const argv[] = {compute_exe, "--config",       w->config, "--accel",
                                "tcg",       "--stop-limit",   "3",       "--terminate-limit",
                                "2",         "--reboot-limit", "3",       "--launch-limit",
                                "8",         "--detach-pause", "1",       NULL};
    memcpy(w->compute_argv, argv, sizeof(argv));
    char state_log[PATH_MAX], compute_log[PATH_MAX];
    const struct daemon_opts so = {.argv = w->state_argv,
                                   .log_path = tmpdir_path(&w->dir, "state.log", state_log),
                                   .health_socket = w->state_sock};
    const struct daemon_opts co = {.argv = w->compute_argv,
                                   .log_path = tmpdir_path(&w->dir, "compute.log", compute_log),
                                   .health_socket = w->compute_sock};
    if (daemon_start(&so, &w->state, &err) < 0 || daemon_start(&co, &w->compute, &err) < 0) {
        fail_msg("%s", err.msg);
    }
    assert_int_equal(kv_open_remote_as(w->state_sock, "admin", &w->kv, &err), 0);
    w->rpc = rpc_client_new(w->compute_sock, NULL, NULL);
}

static struct rpc_reply ask(struct world *w, const char *method, const char *args)
{
    struct rpc_reply reply = {0};
    struct err err = ERR_INIT;
    if (rpc_call(w->rpc, str_c(method), str_c(args), NULL, 0, 10 * NS_PER_S, &reply, &err) <
        0) {
        reply.payload = NULL;
    }
    return reply;
}

/* A number of one guest of the list "guests"; 0 when it is not there. */
uint64_t guest_num(struct world *w, const char *id, const char *member)
{
    AUTO(rpc_reply_done) struct rpc_reply r = ask(w, "guests", "{}");
    AUTO(json_freep) struct json *j = NULL;
    if (!r.payload || json_parse(str_n(r.payload, r.n), &j, NULL) < 0) {
        return 0;
    }
    const struct json *list = json_get(j, "guests");
    for (size_t i = 0; i < json_len(list); i++) {
        if (str_eqc(json_get_str(json_at(list, i), "id"), id)) {
            return json_get_u64(json_at(list, i), member, 0);
        }
    }
    return 0;
}

/* Also after a failure: what a test left running is found by the notes in its run folder. */
int tear_down(void **state)
{
    struct world *w = current;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 20);
    const struct spawn_host h = {.dirs = {.run_dir = w->dir.path, .data_dir = w->dir.path}};
    struct str *ids = NULL;
    size_t n = 0;
    int status = w->compute ? daemon_stop(w->compute, 20 * NS_PER_S) : 0;
    if (guest_dir_list(&h.dirs, a, &ids, &n, NULL) < 0) {
        n = 0;
    }
    for (size_t i = 0; i < n; i++) {
        struct guest_note note;
        if (guest_note_read(&h.dirs, ids[i].p, &note, NULL) == 0) {
            (void)proc_kill(&note.monitor);
            spawn_kill_all(&h, &note);
            spawn_forget(note.id);
        }
    }
    daemon_free(w->compute);
    rpc_client_free(w->rpc);
    if (w->kv) {
        kv_close(w->kv);
    }
    daemon_free(w->state);
    loop_stop(w->loop);
    pthread_join(w->thread, NULL);
    rpc_server_free(w->block);
    rpc_server_free(w->net);
    loop_free(w->loop);
    test_disks_done(&w->disks);
    tmpdir_done(&w->dir);
    return status;
}

/* ---- records ---- */

void put(struct world *w, struct arena *a, struct str key, const struct rec_desc *d,
         const void *rec)
{
    AUTO_BUF b;
    buf_init(&b, 65536);
    struct err err = ERR_INIT;
    assert_int_equal(rec_save(d, rec, &b, &err), 0);
    const struct kv_op op = {.type = KV_PUT, .key = key, .value = buf_str(&b)};
    (void)a;
    if (kv_txn(w->kv, NULL, 0, &op, 1, NULL, &err) < 0) {
        fail_msg("%s", err.msg);
    }
}

bool get(struct world *w, struct arena *a, struct str key, const struct rec_desc *d, void *rec)
{
    struct kv_item item;
    return kv_get(w->kv, a, key, &item, NULL) == 0 &&
           rec_load(d, a, item.value, rec, NULL) == 0;
}

void put_volume(struct world *w, const char *id, const char *instance, const char *device,
                const char *want, bool is_forced, bool is_available)
{
    static uint64_t generation;
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    const struct volume v = {.id = str_c(id),
                             .account = STR(ACCOUNT),
                             .generation = ++generation,
                             .want = STR("present"),
                             .node = STR("n1"),
                             .size_gib = 1,
                             .type = STR("gp3"),
                             .instance_id = str_c(instance),
                             .device = str_c(device),
                             .attach_want = str_c(want),
                             .is_detach_forced = is_forced};
    const struct volume_status st = {.id = v.id,
                                     .generation = generation,
                                     .state =
                                         is_available ? STR("available") : STR("creating")};
    put(w, a, key_status(a, "volume", v.account, v.id), &volume_status_desc, &st);
    put(w, a, key_spec(a, "volume", v.account, v.id), &volume_desc, &v);
}

void make_volume(struct world *w, const char *id, bool is_bootable)
{
    char path[PATH_MAX];
    disk_path(w, str_c(id), path);
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, 1 << 20), 0);
    if (is_bootable) {
        AUTO_FREE char *code = NULL;
        size_t n = 0;
        assert_int_equal(file_read(sector, 4096, &code, &n, NULL), 0);
        assert_int_equal(pwrite(fd, code, n, 0), (ssize_t)n);
    }
}

void change(struct world *w, const char *id, const char *want, bool is_forced, bool is_reboot)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    struct instance s;
    struct str key = key_spec(a, "instance", STR(ACCOUNT), str_c(id));
    assert_true(get(w, a, key, &instance_desc, &s));
    s.generation++;
    s.want = str_c(want);
    s.is_forced = is_forced;
    s.n_reboots += is_reboot;
    put(w, a, key, &instance_desc, &s);
}

static void put_instance(struct world *w, struct vm *vm, const char *behavior, uint64_t n_vcpus)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    const struct instance s = {.id = str_c(vm->id),
                               .account = STR(ACCOUNT),
                               .generation = 1,
                               .want = STR("running"),
                               .node = STR("n1"),
                               .instance_type = STR("t3.nano"),
                               .arch = STR("x86_64"),
                               .boot_mode = STR("bios"),
                               .n_vcpus = n_vcpus,
                               .memory_mib = 64,
                               .subnet_id = STR("subnet-1"),
                               .root_device = STR("/dev/xvda"),
                               .shutdown_behavior = str_c(behavior)};
    put(w, a, key_spec(a, "instance", STR(ACCOUNT), str_c(vm->id)), &instance_desc, &s);
}

/* The records of RunInstances, instance first: compute must wait for the rest. */
void launch(struct world *w, struct vm *vm, const char *behavior, uint64_t n_vcpus,
            bool is_available)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    uint64_t n = ++w->n_ids;
    (void)snprintf(vm->id, sizeof(vm->id), "i-%09x%08x", (unsigned)getpid(), (unsigned)n);
    (void)snprintf(vm->root, sizeof(vm->root), "vol-%09x%08x", (unsigned)getpid(), (unsigned)n);
    (void)snprintf(vm->eni, sizeof(vm->eni), "eni-%09x%08x", (unsigned)getpid(), (unsigned)n);
    make_volume(w, vm->root, true);
    put_instance(w, vm, behavior, n_vcpus);
    put_volume(w, vm->root, vm->id, "/dev/xvda", "attached", false, is_available);
    const struct eni e = {.id = str_c(vm->eni),
                          .account = STR(ACCOUNT),
                          .instance_id = str_c(vm->id),
                          .generation = 1,
                          .want = STR("present"),
                          .node = STR("n1")};
    put(w, a, key_spec(a, "eni", e.account, e.id), &eni_desc, &e);
    const struct eni_status st = {.id = e.id, .generation = 1, .state = STR("ready")};
    put(w, a, key_status(a, "eni", e.account, e.id), &eni_status_desc, &st);
}

struct instance_status status(struct world *w, struct arena *a, const char *id)
{
    struct instance_status st = {.state = STR("absent")};
    if (!get(w, a, key_status(a, "instance", STR(ACCOUNT), str_c(id)), &instance_status_desc,
             &st)) {
        st = (struct instance_status){
            .state = STR("absent"), .reason_code = STR(""), .reason_message = STR("")};
    }
    return st;
}

bool is_state(struct world *w, const char *id, const char *state)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    return str_eqc(status(w, a, id).state, state);
}

void wait_state(struct world *w, const char *id, const char *state)
{
    WAIT_UNTIL(state, is_state(w, id, state));
}

bool is_attachment(struct world *w, const char *volume, const char *state, uint64_t *slot)
{
    AUTO(arena_freep) struct arena *a = arena_new(1 << 18);
    struct attachment_status st;
    if (!get(w, a, key_status(a, "attachment", STR(ACCOUNT), str_c(volume)),
             &attachment_status_desc, &st)) {
        return false;
    }
    if (slot) {
        *slot = st.slot;
    }
    return str_eqc(st.state, state);
}

size_t console_count(struct world *w, const char *id, const char *what)
{
    char args[128];
    (void)snprintf(args, sizeof(args), "{\"account\":\"" ACCOUNT "\",\"instance_id\":\"%s\"}",
                   id);
    AUTO(rpc_reply_done) struct rpc_reply r = ask(w, "console.get", args);
    AUTO(json_freep) struct json *j = NULL;
    AUTO_BUF text;
    buf_init(&text, 1 << 20);
    if (!r.payload || json_parse(str_n(r.payload, r.n), &j, NULL) < 0 ||
        base64_decode(json_get_str(j, "text"), &text) < 0) {
        return 0;
    }
    size_t n = 0;
    struct str rest = buf_str(&text);
    for (ptrdiff_t i; (i = str_find_str(rest, str_c(what))) >= 0; n++) {
        rest = str_skip(rest, (size_t)i + 1);
    }
    return n;
}

bool try_type(struct world *w, const char *id, char byte)
{
    char args[160];
    AUTO_BUF b64;
    buf_init(&b64, 16);
    base64_encode(str_n(&byte, 1), &b64);
    (void)snprintf(args, sizeof(args),
                   "{\"account\":\"" ACCOUNT "\",\"instance_id\":\"%s\",\"data\":\"%s\"}", id,
                   buf_cstr(&b64));
    AUTO(rpc_reply_done) struct rpc_reply r = ask(w, "console.input", args);
    return r.payload != NULL;
}

void type(struct world *w, const char *id, char byte)
{
    assert_true(try_type(w, id, byte));
}

void run(struct world *w, struct vm *vm, const char *behavior)
{
    launch(w, vm, behavior, 1, true);
    wait_state(w, vm->id, "running");
    WAIT_UNTIL("boot", console_count(w, vm->id, "BOOT OK") == 1);
}

bool has_run_folder(struct world *w, const char *id)
{
    char path[PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/guest/%s", w->dir.path, id);
    return access(path, F_OK) == 0;
}

uid_t owner_of(uint64_t pid)
{
    char path[64];
    struct stat st;
    (void)snprintf(path, sizeof(path), "/proc/%llu", (unsigned long long)pid);
    return stat(path, &st) == 0 ? st.st_uid : (uid_t)-1;
}
