#include "viperblock/test_env.h"
#include "base/time.h"
#include "codec/json.h"
#include "loop/child.h"
#include "model/keys.h"
#include "os/proc_id.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#define WAIT_NS (60 * NS_PER_S)

static const char *helper_path, *data_path;

void env_helper(const char *import_exe, const char *data_exe)
{
    static char absolute[2][PATH_MAX]; /* children start in another folder */
    helper_path = realpath(import_exe, absolute[0]);
    data_path = data_exe ? realpath(data_exe, absolute[1]) : NULL;
}

static void join(char out[PATH_MAX], const char *dir, const char *name)
{
    assert_true(snprintf(out, PATH_MAX, "%s/%s", dir, name) < PATH_MAX);
}

void env_init(struct env *e, const char *dir)
{
    *e = (struct env){.max_image_size = 0};
    join(e->dir, dir, "");
    join(e->data, dir, "data");
    join(e->run, dir, "run");
    join(e->socket, dir, "vb.sock");
    join(e->db, dir, "state.db");
}

static void on_event(void *ctx, uint32_t stream, struct str payload)
{
    struct env *e = ctx;
    struct json *j = NULL;
    if (stream == 7 && json_parse(payload, &j, NULL) == 0 && json_get_str(j, "phase").n > 0) {
        __atomic_add_fetch(&e->n_events, 1, __ATOMIC_SEQ_CST);
    }
    json_free(j);
}

static void *run_loop(void *loop)
{
    loop_run(loop);
    return NULL;
}

static void stop_loop(void *loop)
{
    loop_stop(loop);
}

void env_start(struct env *e)
{
    static const struct rpc_client_ops ops = {.on_event = on_event};
    struct err err = ERR_INIT;
    e->a = arena_new(64u << 20);
    if (kv_open_sqlite(e->db, &e->kv, &err) != 0) {
        fail_msg("store: %s", err.msg);
    }
    e->loop = loop_new();
    struct vb_opts o = {.kv = e->kv,
                        .loop = e->loop,
                        .data_dir = e->data,
                        .socket_path = e->socket,
                        .node = "node1",
                        .helper = helper_path,
                        .data_exe = data_path ? data_path : "/bin/false",
                        .run_dir = e->run,
                        .max_image_size = e->max_image_size};
    if (vb_new(&o, &e->vb, &err) != 0) {
        fail_msg("start: %s", err.msg);
    }
    e->rpc = rpc_client_new(e->socket, &ops, e);
    assert_int_equal(pthread_create(&e->thread, NULL, run_loop, e->loop), 0);
}

void env_stop(struct env *e)
{
    rpc_client_free(e->rpc);
    loop_post(e->loop, stop_loop, e->loop);
    pthread_join(e->thread, NULL);
    vb_free(e->vb);
    loop_free(e->loop);
    kv_close(e->kv);
    arena_free(e->a);
}

void env_put_volume(struct env *e, const struct volume *v)
{
    AUTO_BUF b;
    struct err err = ERR_INIT;
    buf_init(&b, KV_MAX_VALUE);
    assert_int_equal(rec_save(&volume_desc, v, &b, &err), 0);
    struct kv_op op = {.type = KV_PUT,
                       .key = key_spec(e->a, "volume", v->account, v->id),
                       .value = buf_str(&b)};
    assert_int_equal(kv_txn(e->kv, NULL, 0, &op, 1, NULL, &err), 0);
}

struct str env_get(struct env *e, struct str key)
{
    struct kv_item item;
    return kv_get(e->kv, e->a, key, &item, NULL) == 0 ? item.value : STR("");
}

const struct volume_status *env_wait_volume(struct env *e, const char *id, const char *state)
{
    struct volume_status *st = arena_new_of(e->a, struct volume_status);
    struct str key = key_status(e->a, "volume", STR(TEST_ACCOUNT), str_c(id));
    uint64_t end = time_mono_ns() + WAIT_NS;
    do {
        struct str text = env_get(e, key);
        if (text.n > 0) {
            assert_int_equal(rec_load(&volume_status_desc, e->a, text, st, NULL), 0);
            if (str_eqc(st->state, state)) {
                return st;
            }
        }
        usleep(5000);
    } while (time_mono_ns() < end);
    fail_msg("%s is %.*s (%.*s), not %s", id, STR_ARG(st->state), STR_ARG(st->reason), state);
    return NULL;
}

const struct image *env_get_image(struct env *e, const char *id)
{
    struct image *i = arena_new_of(e->a, struct image);
    struct str text = env_get(e, key_spec(e->a, "image", STR(TEST_ACCOUNT), str_c(id)));
    return text.n > 0 && rec_load(&image_desc, e->a, text, i, NULL) == 0 ? i : NULL;
}

int env_import(struct env *e, const char *path, const char *name, const char *more,
               char ret_id[32], struct err *err)
{
    char args[2000];
    struct rpc_reply r;
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC);
    assert_true(fd >= 0);
    snprintf(args, sizeof(args),
             "{\"account\":\"" TEST_ACCOUNT "\",\"name\":\"%s\",\"stream\":7%s%s}", name,
             more[0] ? "," : "", more);
    int rc = rpc_call(e->rpc, STR("image.import"), str_c(args), &fd, 1, 60 * NS_PER_S, &r, err);
    if (rc == 0) {
        struct json *j = NULL;
        assert_int_equal(json_parse(str_n(r.payload, r.n), &j, NULL), 0);
        snprintf(ret_id, 32, "%.*s", STR_ARG(json_get_str(j, "image_id")));
        json_free(j);
        rpc_reply_done(&r);
    }
    return rc;
}

int env_call(struct env *e, const char *method, const char *args, struct str *ret,
             struct err *err)
{
    struct rpc_reply r;
    int rc = rpc_call(e->rpc, str_c(method), str_c(args), NULL, 0, WAIT_NS, &r, err);
    if (rc == 0) {
        if (ret) {
            *ret = arena_str_dup(e->a, str_n(r.payload, r.n));
        }
        rpc_reply_done(&r);
    }
    return rc;
}

int env_open(struct env *e, const char *volume_id, const char *instance_id,
             struct test_disk *ret, struct err *err)
{
    char args[300];
    struct str text;
    struct json *j = NULL;
    snprintf(args, sizeof(args),
             "{\"account\":\"" TEST_ACCOUNT
             "\",\"volume_id\":\"%s\",\"instance_id\":\"%s\",\"uid\":%u,\"n_queues\":1}",
             volume_id, instance_id, geteuid());
    int rc = env_call(e, "volume.open", args, &text, err);
    if (rc == 0) {
        assert_int_equal(json_parse(text, &j, NULL), 0);
        rc = test_disk_open(ret, arena_cstr(e->a, json_get_str(j, "path")), err);
        json_free(j);
    }
    return rc;
}

int env_close(struct env *e, const char *volume_id, const char *instance_id, bool is_forced,
              struct err *err)
{
    char args[300];
    snprintf(args, sizeof(args),
             "{\"account\":\"" TEST_ACCOUNT
             "\",\"volume_id\":\"%s\",\"instance_id\":\"%s\",\"is_forced\":%s}",
             volume_id, instance_id, is_forced ? "true" : "false");
    return env_call(e, "volume.close", args, NULL, err);
}

/* The process learns a moment later than we that its frontend is gone. */
static void close_soon(struct env *e, const char *volume_id, const char *instance_id)
{
    struct err err = ERR_INIT;
    uint64_t end = time_mono_ns() + WAIT_NS;
    int rc;
    do {
        err_clear(&err);
        rc = env_close(e, volume_id, instance_id, false, &err);
        usleep(5000);
    } while (rc == -EBUSY && time_mono_ns() < end);
    if (rc != 0) {
        fail_msg("closing %s: %s", volume_id, err.msg);
    }
}

void env_volume_equals(struct env *e, const char *volume_id, const char *instance_id,
                       const char *path)
{
    struct test_disk d;
    struct err err = ERR_INIT;
    if (env_open(e, volume_id, instance_id, &d, &err) != 0) {
        fail_msg("opening %s: %s: %s", volume_id, err.name, err.msg);
    }
    test_disk_equals(&d, path);
    test_disk_close(&d);
    close_soon(e, volume_id, instance_id);
}

static size_t each_process(struct env *e, bool is_ended)
{
    char path[PATH_MAX * 2];
    size_t n = 0;
    DIR *d = opendir(e->run);
    for (const struct dirent *x = d ? readdir(d) : NULL; x; x = readdir(d)) {
        if (strncmp(x->d_name, "i-", 2) != 0 && strncmp(x->d_name, "vol-", 4) != 0) {
            continue;
        }
        pid_t pid = 0;
        int fd = -1;
        n++;
        snprintf(path, sizeof(path), "%s/%s/pid", e->run, x->d_name);
        if (is_ended && proc_id_open(path, &pid, &fd, NULL) == 0) {
            kill(pid, SIGKILL);
            close(fd);
        }
    }
    if (d) {
        closedir(d);
    }
    return n;
}

size_t env_n_processes(struct env *e)
{
    return each_process(e, false);
}

void env_end_processes(struct env *e)
{
    each_process(e, true);
}

size_t env_count(struct env *e, const char *sub)
{
    char path[PATH_MAX];
    size_t n = 0;
    join(path, e->data, sub);
    DIR *d = opendir(path);
    assert_non_null(d);
    for (struct dirent *x = readdir(d); x; x = readdir(d)) {
        n += strcmp(x->d_name, ".") != 0 && strcmp(x->d_name, "..") != 0;
    }
    closedir(d);
    return n;
}

bool same_bytes(const char *a, const char *b)
{
    static char x[1 << 20], y[1 << 20], zero[1 << 20];
    AUTO_FD fa = open(a, O_RDONLY | O_CLOEXEC);
    AUTO_FD fb = open(b, O_RDONLY | O_CLOEXEC);
    if (fa < 0 || fb < 0) {
        return false;
    }
    for (off_t off = 0;;) {
        off_t da = lseek(fa, off, SEEK_DATA), db = lseek(fb, off, SEEK_DATA);
        if (da < 0 && db < 0) { /* only holes are left: sizes decide */
            off = lseek(fb, 0, SEEK_END);
            return lseek(fa, 0, SEEK_END) <= off;
        }
        off = da < 0 ? db : db < 0 ? da : MIN(da, db);
        ssize_t nb = pread(fb, y, sizeof(y), off);
        ssize_t na = pread(fa, x, sizeof(x), off);
        if (nb <= 0) {
            return nb == 0 && na == 0;
        }
        if (na < 0 || na > nb || memcmp(x, y, (size_t)na) != 0 ||
            memcmp(y + na, zero, (size_t)(nb - na)) != 0) {
            return false;
        }
        off += nb;
    }
}

void make_disk(const char *path, unsigned mib)
{
    char block[4096];
    AUTO_FD fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)mib << 20), 0);
    uint32_t x = 12345;
    for (off_t off = 0; off < (off_t)mib << 20;
         off += 384 << 10) { /* a few pieces in each MiB, holes between */
        for (size_t i = 0; i < sizeof(block); i++) {
            x = x * 1664525u + 1013904223u;
            block[i] = (char)(x >> 24);
        }
        assert_int_equal(pwrite(fd, block, sizeof(block), off), sizeof(block));
    }
    assert_int_equal(pwrite(fd, "\x55\xaa", 2, 510), 2);
}

void sh(const char *dir, const char *text)
{
    struct err err = ERR_INIT;
    const char *argv[] = {"/bin/sh", "-ec", text, NULL};
    struct child_opts o = {.argv = argv, .cwd = dir};
    if (child_run(&o, 60 * NS_PER_S, NULL, &err) != 0) {
        fail_msg("%s: %s", text, err.msg);
    }
}
