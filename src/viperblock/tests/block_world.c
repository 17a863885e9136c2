#include "viperblock/tests/block_world.h"

#include "base/file.h"
#include "base/rand.h"
#include "base/time.h"
#include "codec/json.h"
#include "model/keys.h"
#include "net/rpc.h"
#include "os/proc_id.h"
#include "snap/snap_s3.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define WAIT_NS   (60 * NS_PER_S)
#define ARENA_MAX (256u << 20)

static const char *exes[WORLD_N];
static const char *const names[WORLD_N] = {"state", "predastore", "viperblock"};

/* --- services
 * ------------------------------------------------------------------------------- */

static void run(const char *const argv[])
{
    int status = 0;
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        int null = open("/dev/null", O_WRONLY | O_CLOEXEC);
        dup2(null, 1);
        execv(argv[0], (char *const *)(uintptr_t)argv);
        _exit(127);
    }
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_int_equal(status, 0);
}

void world_start(struct world *w, enum world_service s)
{
    char log[64], path[PATH_MAX], sock[64], health[PATH_MAX];
    struct err e = ERR_INIT;
    const char *argv[] = {exes[s], "--config", w->config, NULL};
    snprintf(log, sizeof(log), "%s.log", names[s]);
    snprintf(sock, sizeof(sock), "run/%s.sock", names[s]);
    const struct daemon_opts o = {.argv = argv,
                                  .log_path = tmpdir_path(&w->dir, log, path),
                                  .health_socket = tmpdir_path(&w->dir, sock, health)};
    int rc = w->d[s] ? daemon_restart(w->d[s], &e) : daemon_start(&o, &w->d[s], &e);
    if (rc != 0) {
        fail_msg("%s: %s", names[s], e.msg);
    }
}

void world_stop(struct world *w, enum world_service s)
{
    int rc = daemon_stop(w->d[s], 30 * NS_PER_S);
    if (rc != 0) {
        fail_msg("%s ended with %d", names[s], rc);
    }
}

void world_kill(struct world *w, enum world_service s)
{
    daemon_kill(w->d[s]);
}

void world_restart(struct world *w, enum world_service s)
{
    world_start(w, s);
}

void world_init(struct world *w, char **argv)
{
    char etc[PATH_MAX], port[8], s3_port[8];
    struct err e = ERR_INIT;
    unsigned p = 12000 + (unsigned)(rand_u64() % 9000) * 2;
    *w = (struct world){.kv = NULL};
    tmpdir_init(&w->dir, "blk");
    tmpdir_path(&w->dir, "etc", etc);
    tmpdir_path(&w->dir, "data", w->data);
    tmpdir_path(&w->dir, "run", w->run);
    tmpdir_path(&w->dir, "etc/spinifex.toml", w->config);
    tmpdir_path(&w->dir, "run/viperblock.sock", w->block_sock);
    snprintf(port, sizeof(port), "%u", p);
    snprintf(s3_port, sizeof(s3_port), "%u", p + 1);
    const char *const init[] = {
        argv[1], "admin",        "init",      "--node",     "node1", "--nodes",
        "1",     "--config-dir", etc,         "--data-dir", w->data, "--run-dir",
        w->run,  "--host",       "127.0.0.1", "--port",     port,    "--s3-port",
        s3_port, "--region",     "eu-1",      "--uid-base", "0",     "--no-profile",
        NULL};
    run(init);
    for (size_t s = 0; s < WORLD_N; s++) {
        exes[s] = argv[2 + s];
        world_start(w, (enum world_service)s);
    }
    w->a = arena_new(ARENA_MAX);
    char sock[PATH_MAX];
    assert_int_equal(
        kv_open_remote_as(tmpdir_path(&w->dir, "run/state.sock", sock), "awsgw", &w->kv, &e),
        0);
}

static size_t each_process(struct world *w, const char *only, bool is_killed)
{
    char path[PATH_MAX * 2];
    size_t n = 0;
    snprintf(path, sizeof(path), "%s/viperblock", w->run);
    DIR *d = opendir(path);
    for (const struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        pid_t pid = 0;
        int fd = -1;
        if ((strncmp(x->d_name, "i-", 2) != 0 && strncmp(x->d_name, "vol-", 4) != 0) ||
            (only && strcmp(only, x->d_name) != 0)) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/viperblock/%s/pid", w->run, x->d_name);
        if (proc_id_open(path, &pid, &fd, NULL) == 0) {
            n++;
            if (is_killed) {
                kill(pid, SIGKILL);
            }
            close(fd);
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

bool world_kill_data(struct world *w, const char *name)
{
    return each_process(w, name, true) > 0;
}

size_t world_n_processes(struct world *w)
{
    return each_process(w, NULL, false);
}

size_t world_done(struct world *w)
{
    kv_close(w->kv);
    for (size_t s = WORLD_N; s-- > 0;) {
        if (daemon_is_alive(w->d[s])) {
            world_stop(w, (enum world_service)s);
        }
        daemon_free(w->d[s]);
    }
    size_t n = each_process(w, NULL, true);
    arena_free(w->a);
    tmpdir_done(&w->dir);
    return n;
}

/* --- records
 * -------------------------------------------------------------------------------- */

static void put_rec(struct world *w, const char *kind, struct str id, const struct rec_desc *d,
                    const void *rec)
{
    AUTO_BUF b;
    struct err err = ERR_INIT;
    buf_init(&b, KV_MAX_VALUE);
    assert_int_equal(rec_save(d, rec, &b, &err), 0);
    struct kv_op op = {
        .type = KV_PUT, .key = key_spec(w->a, kind, STR(ACCOUNT), id), .value = buf_str(&b)};
    if (kv_txn(w->kv, NULL, 0, &op, 1, NULL, &err) != 0) {
        fail_msg("%s: %s", kind, err.msg);
    }
}

struct volume world_volume(const char *id, uint64_t gib)
{
    return (struct volume){.id = str_c(id),
                           .account = STR(ACCOUNT),
                           .want = STR("present"),
                           .node = STR("node1"),
                           .size_gib = gib,
                           .type = STR("gp3"),
                           .iops = 16000,
                           .throughput = 1000,
                           .instance_id = STR(INSTANCE)};
}

void world_put_volume(struct world *w, struct volume *v)
{
    v->generation++;
    put_rec(w, "volume", v->id, &volume_desc, v);
}

void world_put_snapshot(struct world *w, const struct snapshot *s)
{
    put_rec(w, "snapshot", s->id, &snapshot_desc, s);
}

void world_put_image(struct world *w, const struct image *i)
{
    put_rec(w, "image", i->id, &image_desc, i);
}

void world_delete(struct world *w, const char *kind, const char *id)
{
    struct kv_op op = {.type = KV_DELETE, .key = key_spec(w->a, kind, STR(ACCOUNT), str_c(id))};
    assert_int_equal(kv_txn(w->kv, NULL, 0, &op, 1, NULL, NULL), 0);
}

struct str world_get(struct world *w, struct str key)
{
    struct kv_item item;
    return kv_get(w->kv, w->a, key, &item, NULL) == 0 ? item.value : STR("");
}

static void wait_state(struct world *w, const char *kind, const char *id,
                       const struct rec_desc *d, void *rec, const struct str *state,
                       const char *want)
{
    struct str key = key_status(w->a, kind, STR(ACCOUNT), str_c(id)), text = STR("");
    uint64_t end = time_mono_ns() + WAIT_NS;
    do {
        text = world_get(w, key);
        if (text.n > 0) {
            assert_int_equal(rec_load(d, w->a, text, rec, NULL), 0);
            if (str_eqc(*state, want)) {
                return;
            }
        }
        usleep(10000);
    } while (time_mono_ns() < end);
    fail_msg("%s: %.*s, not %s", id, STR_ARG(text), want);
}

struct snapshot_status world_wait_snapshot(struct world *w, const char *id, const char *state)
{
    struct snapshot_status st = {.state = STR("")};
    wait_state(w, "snapshot", id, &snapshot_status_desc, &st, &st.state, state);
    return st;
}

struct volume_status world_wait_volume(struct world *w, const char *id, const char *state)
{
    struct volume_status st = {.state = STR("")};
    wait_state(w, "volume", id, &volume_status_desc, &st, &st.state, state);
    return st;
}

struct snapshot world_snapshot_rec(const char *id, const char *volume)
{
    return (struct snapshot){.id = str_c(id),
                             .account = STR(ACCOUNT),
                             .generation = 1,
                             .want = STR("present"),
                             .source = STR("volume"),
                             .volume_id = str_c(volume),
                             .node = STR("node1"),
                             .size_gib = 1,
                             .create_ns = 1};
}

void world_snapshot(struct world *w, const char *id, const char *volume)
{
    struct snapshot s = world_snapshot_rec(id, volume);
    world_put_snapshot(w, &s);
    world_wait_snapshot(w, id, "completed");
}

void world_wait_started(struct world *w, const char *id)
{
    struct str key = key_status(w->a, "snapshot", STR(ACCOUNT), str_c(id));
    uint64_t end = time_mono_ns() + WAIT_NS;
    while (time_mono_ns() < end) {
        struct snapshot_status st;
        struct str text = world_get(w, key);
        if (text.n > 0 && rec_load(&snapshot_status_desc, w->a, text, &st, NULL) == 0 &&
            st.start_ns != 0) {
            return;
        }
        usleep(5000);
    }
    fail_msg("%s was not taken", id);
}

void world_modify(struct world *w, struct volume *v, uint64_t gib)
{
    struct volume_mod_status st = {.state = STR("")};
    struct volume_mod m = {.id = v->id,
                           .account = v->account,
                           .generation = v->generation + 1,
                           .from_size_gib = v->size_gib,
                           .size_gib = gib};
    struct str key = key_status(w->a, "volmod", STR(ACCOUNT), v->id);
    uint64_t end = time_mono_ns() + WAIT_NS;
    v->size_gib = gib;
    put_rec(w, "volmod", v->id, &volume_mod_desc, &m);
    world_put_volume(w, v);
    do {
        struct str text = world_get(w, key);
        if (text.n > 0) {
            assert_int_equal(rec_load(&volume_mod_status_desc, w->a, text, &st, NULL), 0);
        }
        if (st.generation == m.generation && str_eqc(st.state, "completed")) {
            assert_int_equal(st.progress, 100);
            return;
        }
        usleep(10000);
    } while (time_mono_ns() < end);
    fail_msg("the modification is %.*s (%.*s)", STR_ARG(st.state), STR_ARG(st.reason));
}

void world_delete_snapshot(struct world *w, const char *id, const char *volume)
{
    struct snapshot s = world_snapshot_rec(id, volume);
    s.want = STR("deleted");
    s.generation = 2;
    world_put_snapshot(w, &s);
    world_wait_snapshot(w, id, "deleted");
    world_delete(w, "snapshot", id);
}

void world_delete_volume(struct world *w, struct volume *v)
{
    v->want = STR("deleted");
    world_put_volume(w, v);
    world_wait_volume(w, arena_cstr(w->a, v->id), "deleted");
}

/* --- calls
 * ---------------------------------------------------------------------------------- */

int world_call(struct world *w, const char *method, const char *args, int fd, struct str *ret,
               int *ret_fd, struct err *err)
{
    struct rpc_reply r;
    struct rpc_client *c = rpc_client_new(w->block_sock, NULL, NULL);
    int rc = rpc_call(c, str_c(method), str_c(args), &fd, fd >= 0, WAIT_NS, &r, err);
    if (rc == 0) {
        if (ret) {
            *ret = arena_str_dup(w->a, str_n(r.payload, r.n));
        }
        if (ret_fd) {
            assert_int_equal(r.n_fds, 1);
            *ret_fd = steal_fd(&r.fds[0]);
        }
        rpc_reply_done(&r);
    }
    rpc_client_free(c);
    return rc;
}

void world_open(struct world *w, const char *volume, const char *instance,
                struct test_disk *ret)
{
    char args[300];
    struct str text = STR("");
    struct json *j = NULL;
    struct err err = ERR_INIT;
    uint64_t end = time_mono_ns() + WAIT_NS;
    snprintf(args, sizeof(args),
             "{\"account\":\"" ACCOUNT
             "\",\"volume_id\":\"%s\",\"instance_id\":\"%s\",\"uid\":%u,\"n_queues\":1}",
             volume, instance, geteuid());
    int rc = -EAGAIN;
    while (rc != 0 && time_mono_ns() < end) { /* as compute asks: again while it is not ready */
        err_clear(&err);
        rc = world_call(w, "volume.open", args, -1, &text, NULL, &err);
        if (rc != 0) {
            usleep(50000);
        }
    }
    if (rc != 0) {
        fail_msg("opening %s: %s: %s", volume, err.name, err.msg);
    }
    assert_int_equal(json_parse(text, &j, NULL), 0);
    rc = test_disk_open(ret, arena_cstr(w->a, json_get_str(j, "path")), &err);
    if (rc != 0) {
        fail_msg("connecting to %s: %s", volume, err.msg);
    }
    json_free(j);
}

void world_close(struct world *w, const char *volume, const char *instance, struct test_disk *d)
{
    char args[300];
    struct err err = ERR_INIT;
    uint64_t end = time_mono_ns() + WAIT_NS;
    int rc = -EBUSY;
    test_disk_close(d);
    snprintf(args, sizeof(args),
             "{\"account\":\"" ACCOUNT "\",\"volume_id\":\"%s\",\"instance_id\":\"%s\"}",
             volume, instance);
    while (rc != 0 && time_mono_ns() < end) { /* the other side learns of it a moment later */
        err_clear(&err);
        rc = world_call(w, "volume.close", args, -1, NULL, NULL, &err);
        if (rc != 0) {
            usleep(10000);
        }
    }
    if (rc != 0) {
        fail_msg("closing %s: %s", volume, err.msg);
    }
}

/* --- accounting
 * ----------------------------------------------------------------------------- */

struct snap_usage world_usage(struct world *w)
{
    char sock[PATH_MAX], pending[PATH_MAX], key[PATH_MAX];
    struct err err = ERR_INIT;
    struct keys *keys = NULL;
    struct snap_store *s = NULL;
    struct snap_usage u;
    world_stop(w, WORLD_BLOCK);
    assert_int_equal(
        keys_open_file(tmpdir_path(&w->dir, "data/viperblock/root.key", key), &keys, &err), 0);
    struct snap_opts o = {.socket = tmpdir_path(&w->dir, "run/predastore-s3.sock", sock),
                          .bucket = ".viperblock",
                          .pending_dir =
                              tmpdir_path(&w->dir, "data/viperblock/pending", pending),
                          .keys = keys};
    assert_int_equal(snap_open(&o, &s, &err), 0);
    if (snap_collect(s, STR(ACCOUNT), &u, &err) != 0 ||
        snap_check(s, STR(ACCOUNT), true, &u, &err) != 0) {
        fail_msg("%s", err.msg);
    }
    snap_close(s);
    keys_close(keys);
    assert_int_equal(u.n_missing, 0);
    assert_int_equal(u.n_damaged, 0);
    world_start(w, WORLD_BLOCK);
    return u;
}

size_t world_objects(struct world *w)
{
    static const char *const kinds[] = {"b/", "p/", "m/", "r/"};
    static struct snap_s3_item items[SNAP_S3_LIST_MAX];
    char sock[PATH_MAX];
    struct err err = ERR_INIT;
    size_t n = 0, n_all = 0;
    bool is_more = false;
    AUTO(snap_s3_freep)
    struct snap_s3 *c = snap_s3_new(
        &(struct snap_s3_opts){.socket = tmpdir_path(&w->dir, "run/predastore-s3.sock", sock),
                               .bucket = ".viperblock",
                               .n_conns = 1,
                               .stall_ns = WAIT_NS});
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (snap_s3_list(c, kinds[i], "", false, items, &n, &is_more, &err) != 0) {
            fail_msg("%s: %s", kinds[i], err.msg);
        }
        assert_false(is_more);
        n_all += n;
    }
    return n_all;
}

size_t world_count(struct world *w, const char *sub)
{
    char path[PATH_MAX];
    size_t n = 0;
    DIR *d = opendir(tmpdir_path(&w->dir, sub, path));
    for (const struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        n += strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0;
    }
    if (d) {
        closedir(d);
    }
    return n;
}

uint64_t world_allocated(struct world *w, const char *kind, const char *id)
{
    char path[PATH_MAX * 2];
    struct stat st;
    snprintf(path, sizeof(path), "%s/viperblock/%s/%s/data", w->data, kind, id);
    assert_int_equal(stat(path, &st), 0);
    return (uint64_t)st.st_blocks * 512;
}

void world_sh(const char *text)
{
    const char *const argv[] = {"/bin/sh", "-ec", text, NULL};
    run(argv);
}

void world_wipe_node(struct world *w)
{
    char text[PATH_MAX * 4];
    world_stop(w, WORLD_BLOCK);
    each_process(w, NULL, true);
    snprintf(text, sizeof(text),
             "find '%s/viperblock' -mindepth 1 -maxdepth 1 ! -name root.key -exec rm -r {} +; "
             "rm -rf '%s/viperblock'",
             w->data, w->run);
    world_sh(text);
    world_start(w, WORLD_BLOCK);
}

static bool file_has(const char *path, const void *p, size_t n)
{
    static char buf[(1 << 20) + 4096];
    bool found = false;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    for (off_t off = 0; fd >= 0 && !found;) {
        off = lseek(fd, off, SEEK_DATA);
        ssize_t got = off < 0 ? 0 : pread(fd, buf, sizeof(buf), off);
        if (got <= 0) {
            break;
        }
        found = memmem(buf, (size_t)got, p, n) != NULL;
        off += 1 << 20;
    }
    return found;
}

bool world_has_bytes(const char *folder, const void *p, size_t n)
{
    char path[PATH_MAX];
    bool found = false;
    DIR *d = opendir(folder);
    for (const struct dirent *e = d ? readdir(d) : NULL; e && !found; e = readdir(d)) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        snprintf(path, sizeof(path), "%s/%s", folder, e->d_name);
        found = e->d_type == DT_DIR   ? world_has_bytes(path, p, n)
                : e->d_type == DT_REG ? file_has(path, p, n)
                                      : false;
    }
    if (d) {
        closedir(d);
    }
    return found;
}
