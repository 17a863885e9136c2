/* Volumes, as viperblock.sock tells of them; bytes of volumes through its NBD sockets. */
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "loop/child.h"
#include "model/volume.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/progress.h"
#include "spx/table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>

#define SOCKET     "viperblock.sock"
#define CALL_LIMIT (30 * NS_PER_S)
#define LONG_LIMIT (24 * 3600 * NS_PER_S)
#define N_LATENCY  24u

static void print_json(const struct json *j)
{
    AUTO_BUF out;
    buf_init(&out, 64u << 20);
    json_dump(j, &out);
    printf("%s\n", buf_cstr(&out));
}

/* Rates ------------------------------------------------------------------------------------ */

static const struct json *find_volume(const struct json *list, struct str id)
{
    for (size_t i = 0; i < json_len(list); i++) {
        if (str_eq(json_get_str(json_at(list, i), "id"), id)) {
            return json_at(list, i);
        }
    }
    return NULL;
}

static uint64_t more(const struct json *before, const struct json *now, const char *key)
{
    uint64_t a = before ? json_get_u64(before, key, 0) : 0, b = json_get_u64(now, key, 0);
    return b >= a ? b - a : b; /* the process was started again: it counts from zero */
}

/* Upper end, in microseconds, of the bucket in which the slowest percent begins; 0: nothing ran. */
static uint64_t p99_us(const struct json *before, const struct json *now, const char *key)
{
    uint64_t n[N_LATENCY] = {0}, total = 0, seen = 0;
    const struct json *old = before ? json_get(before, key) : NULL, *new = json_get(now, key);
    for (size_t i = 0; i < N_LATENCY && i < json_len(new); i++) {
        uint64_t a = old && i < json_len(old) ? (uint64_t)json_f64(json_at(old, i), 0) : 0;
        uint64_t b = (uint64_t)json_f64(json_at(new, i), 0);
        n[i] = b >= a ? b - a : b;
        total += n[i];
    }
    for (size_t i = 0; i < N_LATENCY; i++) {
        seen += n[i];
        if (total > 0 && seen * 100 >= total * 99) {
            return UINT64_C(1) << i;
        }
    }
    return 0;
}

static struct str time_shown(struct arena *a, uint64_t us)
{
    return us == 0      ? STR_NONE
           : us < 1000  ? arena_fmt(a, "%" PRIu64 " us", us)
           : us < 10000 ? arena_fmt(a, "%.1f ms", (double)us / 1e3)
                        : arena_fmt(a, "%" PRIu64 " ms", us / 1000);
}

static void volume_row(struct spx *s, struct table *t, const struct json *old,
                       const struct json *v, uint64_t ns)
{
    static const char *const ops[] = {"reads", "writes", "flushes"};
    static const char *const bytes[] = {"read_bytes", "write_bytes"};
    static const char *const latency[] = {"read_latency", "write_latency", "flush_latency"};
    struct str instance = json_get_str(v, "instance_id"), fault = json_get_str(v, "fault");
    uint64_t absent = json_get_u64(v, "absent", 0), left = 0;
    const struct json *snaps = json_get(v, "snapshots");
    for (size_t i = 0; i < json_len(snaps); i++) {
        left += json_get_u64(json_at(snaps, i), "left", 0);
    }
    table_str(t, arena_str_dup(s->arena, json_get_str(v, "id")));
    table_str(t, instance.n ? arena_str_dup(s->arena, instance) : STR_NONE);
    for (size_t i = 0; i < ARRAY_LEN(ops); i++) {
        table_u64(t, ns ? more(old, v, ops[i]) * NS_PER_S / ns : 0);
    }
    for (size_t i = 0; i < ARRAY_LEN(bytes); i++) {
        uint64_t rate =
            ns ? (uint64_t)((double)more(old, v, bytes[i]) * (double)NS_PER_S / (double)ns) : 0;
        table_num(t, rate, table_size(s->arena, rate));
    }
    for (size_t i = 0; i < ARRAY_LEN(latency); i++) {
        uint64_t us = p99_us(old, v, latency[i]);
        table_num(t, us, time_shown(s->arena, us));
    }
    table_u64(t, json_get_u64(v, "in_flight", 0));
    table_num(t, absent, absent ? table_size(s->arena, absent) : STR_NONE);
    table_num(t, left << 19, left ? table_size(s->arena, left << 19) : STR_NONE);
    table_str(t, fault.n ? arena_str_dup(s->arena, fault)
                         : arena_str_dup(s->arena, json_get_str(v, "health")));
}

int cmd_top_volumes(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"VOLUME", "volume"},          {"INSTANCE", "instance"},
        {"READS/S", "reads"},          {"WRITES/S", "writes"},
        {"FLUSHES/S", "flushes"},      {"READ/S", "read_bytes"},
        {"WRITE/S", "write_bytes"},    {"READ 99%", "read_p99_us"},
        {"WRITE 99%", "write_p99_us"}, {"FLUSH 99%", "flush_p99_us"},
        {"DEPTH", "in_flight"},        {"TO FETCH", "absent_bytes"},
        {"TO SAVE", "snapshot_bytes"}, {"HEALTH", "health"},
    };
    AUTO(json_freep) struct json *before = NULL;
    AUTO(json_freep) struct json *now = NULL;
    uint64_t seconds = 0;
    int r = spx_number(s, "--interval", 1, 60, 1, &seconds);
    r = r ? r : spx_call(s, SOCKET, "volume.list", STR("{}"), -1, CALL_LIMIT, &before, err);
    if (r) {
        return r;
    }
    uint64_t begun = time_mono_ns();
    const struct timespec wait = {.tv_sec = (time_t)seconds};
    nanosleep(&wait, NULL);
    r = spx_call(s, SOCKET, "volume.list", STR("{}"), -1, CALL_LIMIT, &now, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    const struct json *list = json_get(now, "volumes");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *v = json_at(list, i);
        volume_row(s, t, find_volume(json_get(before, "volumes"), json_get_str(v, "id")), v,
                   time_mono_ns() - begun);
    }
    table_print(t, s->is_json);
    return 0;
}

/* Looking after them ----------------------------------------------------------------------- */

/* The account of the volume: the record says so. */
static int find_record(struct spx *s, const char *id, const struct volume **ret,
                       struct err *err)
{
    struct recs *volumes = arena_xalloc(s->arena, sizeof(*volumes));
    int r = data_load(s, "spec/volume/", &volume_desc, volumes, err);
    if (r < 0) {
        return r;
    }
    for (size_t i = 0; i < volumes->n; i++) {
        const struct volume *v = recs_at(volumes, struct volume, i);
        if (str_eqc(v->id, id)) {
            *ret = v;
            return 0;
        }
    }
    return fail(err, -ENOENT, "InvalidVolume.NotFound",
                "there is no volume %s (spx get volumes)", id);
}

static int volume_args(struct spx *s, const struct volume *v, const char *flag, bool is_set,
                       struct str *ret, struct err *err)
{
    AUTO_BUF b;
    struct jw w;
    buf_init(&b, 1024);
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    if (v) {
        jw_str(&w, "account", v->account);
        jw_str(&w, "volume_id", v->id);
    }
    jw_bool(&w, flag, is_set);
    jw_obj_end(&w);
    *ret = arena_str_dup(s->arena, buf_str(&b));
    return ret->p ? 0 : fail(err, -ENOMEM, "NoMemory", "no memory for a request");
}

/* Exit status 1 when something is wrong: scripts ask so. */
int cmd_volumes_check(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    const struct volume *v = NULL;
    struct progress p;
    struct str args = STR_NONE;
    int r = s->n_pos > 0 ? find_record(s, s->pos[0], &v, err) : 0;
    r = r < 0 ? r : volume_args(s, v, "is_deep", spx_is_set(s, "--deep"), &args, err);
    if (r < 0) {
        return r;
    }
    progress_start(&p);
    progress_set(&p, "checking", 0, 0, false);
    r = spx_call(s, SOCKET, "volume.check", args, -1, LONG_LIMIT, &j, err);
    progress_end(&p);
    if (r < 0) {
        return r;
    }
    const struct json *list = json_get(j, "problems");
    if (s->is_json) {
        print_json(j);
    }
    for (size_t i = 0; !s->is_json && i < json_len(list); i++) {
        const struct json *x = json_at(list, i);
        printf("%.*s  %.*s\n    %.*s\n", STR_ARG(json_get_str(x, "id")),
               STR_ARG(json_get_str(x, "what")), STR_ARG(json_get_str(x, "text")));
    }
    if (json_len(list) == 0 && !s->is_json) {
        printf("%" PRIu64 " volumes and %" PRIu64 " snapshots are well\n",
               json_get_u64(j, "volumes", 0), json_get_u64(j, "snapshots", 0));
    }
    return json_len(list) == 0
               ? 0
               : fail(err, -EIO, "Degraded", "%zu problems with volumes", json_len(list));
}

int cmd_volumes_orphans(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {{"WHAT", "what"}, {"ID", "id"}, {"SIZE", "bytes"}};
    static const char *const kinds[][2] = {{"volumes", "volume"},
                                           {"images", "image"},
                                           {"snapshots", "snapshot"},
                                           {"processes", "process"}};
    AUTO(json_freep) struct json *j = NULL;
    int r = spx_call(s, SOCKET, "volume.orphans", STR("{}"), -1, LONG_LIMIT, &j, err);
    if (r < 0) {
        return r;
    }
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
        const struct json *list = json_get(j, kinds[k][0]);
        for (size_t i = 0; i < json_len(list); i++) {
            const struct json *x = json_at(list, i);
            struct str id = json_get(x, "id") ? json_get_str(x, "id") : json_str(x);
            uint64_t bytes = json_get_u64(x, "bytes", 0);
            table_cstr(t, kinds[k][1]);
            table_str(t, arena_str_dup(s->arena, id));
            table_num(t, bytes, bytes ? table_size(s->arena, bytes) : STR_NONE);
        }
    }
    if (table_rows(t) == 0 && !s->is_json) {
        puts("nothing lies around that no record knows");
        return 0;
    }
    table_print(t, s->is_json);
    return 0;
}

/* Bytes in and out -------------------------------------------------------------------------- */

/* "(12.34/100%)" as qemu-img writes it; the newest of them in what was read. */
static void show_progress(struct progress *p, const char *phase, struct str text)
{
    uint64_t percent = 0;
    for (struct str rest = text, piece; str_next(&rest, '(', &piece);) {
        size_t n = 0;
        while (n < piece.n && piece.p[n] >= '0' && piece.p[n] <= '9') {
            n++;
        }
        uint64_t v = 0;
        if (n > 0 && num_u64(str_n(piece.p, n), 100, &v) == 0) {
            percent = v;
        }
    }
    progress_set(p, phase, percent, 100, false);
}

/* Runs qemu-img to its end and shows how far it is. */
static int run_copy(const char *const *argv, const char *phase, struct err *err)
{
    int out[2], complaint[2];
    if (pipe2(out, O_CLOEXEC) < 0) {
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    if (pipe2(complaint, O_CLOEXEC) < 0) {
        close(out[0]);
        close(out[1]);
        return fail(err, -errno, "SpawnFailed", "pipe: %m");
    }
    AUTO_FD in = out[0];
    AUTO_FD why = complaint[0];
    const struct child_opts o = {.argv = argv,
                                 .out_fd = out[1],
                                 .err_fd = complaint[1],
                                 .cwd = ".",
                                 .death_signal = SIGKILL};
    struct progress p;
    pid_t pid = 0;
    int r = child_spawn(&o, &pid, err);
    close(out[1]);
    close(complaint[1]);
    if (r < 0) {
        return r;
    }
    progress_start(&p);
    for (;;) {
        char text[4096];
        ssize_t n = read(in, text, sizeof(text));
        if (n == 0 || (n < 0 && errno != EINTR)) {
            break;
        }
        show_progress(&p, phase, str_n(text, n > 0 ? (size_t)n : 0));
    }
    progress_end(&p);
    char text[400];
    ssize_t n = read(why, text, sizeof(text));
    int status = 0;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    struct str said = str_trim(str_n(text, n > 0 ? (size_t)n : 0));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0
               ? 0
               : fail(err, -EIO, "CopyFailed", "qemu-img: %.*s", STR_ARG(said));
}

/* Opens the volume for tools: ret is the URI of its NBD export. */
static int open_nbd(struct spx *s, const struct volume *v, bool is_read_only, const char **ret,
                    struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    struct str args = STR_NONE;
    int r = volume_args(s, v, "is_read_only", is_read_only, &args, err);
    r = r < 0 ? r : spx_call(s, SOCKET, "volume.nbd", args, -1, CALL_LIMIT, &j, err);
    if (r < 0) {
        return r;
    }
    *ret = arena_cstr(s->arena, arena_fmt(s->arena, "nbd+unix:///%.*s?socket=%.*s",
                                          STR_ARG(v->id), STR_ARG(json_get_str(j, "path"))));
    return 0;
}

static void close_nbd(struct spx *s, const struct volume *v)
{
    AUTO(json_freep) struct json *j = NULL;
    struct str args = STR_NONE;
    if (volume_args(s, v, "is_read_only", false, &args, NULL) < 0 ||
        spx_call(s, SOCKET, "volume.nbd_end", args, -1, CALL_LIMIT, &j, NULL) < 0) {
        (void)fprintf(stderr, "spx: the volume's NBD socket stays open until the block service "
                              "is started again\n");
    }
}

static void print_done(const struct spx *s, const struct volume *v, const char *what)
{
    if (s->is_json) {
        printf("{\"volume\":\"%.*s\",\"file\":\"%s\"}\n", STR_ARG(v->id), s->pos[1]);
    } else {
        printf("%.*s: %s %s\n", STR_ARG(v->id), what, s->pos[1]);
    }
}

int cmd_volumes_export(struct spx *s, struct err *err)
{
    const char *format = spx_value(s, "--format") ? spx_value(s, "--format") : "raw";
    const struct volume *v = NULL;
    const char *uri = NULL;
    if (strcmp(format, "raw") != 0 && strcmp(format, "qcow2") != 0) {
        return spx_usage_error(s, "--format is raw or qcow2");
    }
    const char *part = arena_cstr(s->arena, arena_fmt(s->arena, "%s.part", s->pos[1]));
    if (access(s->pos[1], F_OK) == 0 && !spx_is_set(s, "--force")) {
        return fail(err, -EEXIST, "FileExists", "%s is there already (--force replaces it)",
                    s->pos[1]);
    }
    int r = spx_need_root(s, err);
    r = r < 0 ? r : find_record(s, s->pos[0], &v, err);
    r = r < 0 ? r : open_nbd(s, v, true, &uri, err);
    if (r < 0) {
        return r;
    }
    const char *const argv[] = {"qemu-img", "convert", "-p", "-f", "raw",
                                "-O",       format,    uri,  part, NULL};
    r = run_copy(argv, "exporting", err);
    close_nbd(s, v);
    if (r == 0 && rename(part, s->pos[1]) < 0) {
        r = fail(err, -errno, "WriteFailed", "%s: %m", s->pos[1]);
    }
    if (r < 0) {
        (void)unlink(part);
        return r;
    }
    print_done(s, v, "written to");
    return 0;
}

/* Raw bytes alone: formats that name other files are for 'spx admin images import', which takes
 * them apart without rights. */
int cmd_volumes_import(struct spx *s, struct err *err)
{
    const struct volume *v = NULL;
    const char *uri = NULL;
    struct stat st;
    int r = spx_need_root(s, err);
    r = r < 0 ? r : find_record(s, s->pos[0], &v, err);
    if (r < 0) {
        return r;
    }
    if (stat(s->pos[1], &st) < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", s->pos[1]);
    }
    if (S_ISREG(st.st_mode) && (uint64_t)st.st_size > v->size_gib << 30) {
        return fail(err, -EFBIG, "TooLarge",
                    "%s has more bytes than the volume (%" PRIu64 " GiB)", s->pos[1],
                    v->size_gib);
    }
    if (v->instance_id.n > 0) {
        return fail(err, -EBUSY, "VolumeInUse",
                    "the volume is attached to %.*s: detach it first", STR_ARG(v->instance_id));
    }
    r = open_nbd(s, v, false, &uri, err);
    if (r < 0) {
        return r;
    }
    const char *const argv[] = {"qemu-img", "convert", "-p",      "-n", "-f", "raw",
                                "-O",       "raw",     s->pos[1], uri,  NULL};
    r = run_copy(argv, "importing", err);
    close_nbd(s, v);
    if (r == 0) {
        print_done(s, v, "filled from");
    }
    return r;
}
