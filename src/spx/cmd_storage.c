/* The object store, as predastore.sock tells of it. */
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "spx/cmds.h"
#include "spx/dirs.h"
#include "spx/progress.h"
#include "spx/table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <time.h>

#define SOCKET       "predastore.sock"
#define CALL_LIMIT   (30 * NS_PER_S)
#define LONG_LIMIT   (3600 * NS_PER_S)
#define REBUILD_FILE "predastore/rebuild-index" /* as in predastore/main.c */

static int call(struct spx *s, const char *method, struct str payload, struct json **ret,
                struct err *err)
{
    return spx_call(s, SOCKET, method, payload, -1, CALL_LIMIT, ret, err);
}

static void print_json(const struct json *j)
{
    AUTO_BUF out;
    buf_init(&out, 16u << 20);
    json_dump(j, &out);
    printf("%s\n", buf_cstr(&out));
}

/* Buckets ---------------------------------------------------------------------------------- */

static int bucket_page(struct spx *s, struct table *t, struct str *io_after, bool *ret_more,
                       struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    AUTO_BUF q;
    struct jw w;
    buf_init(&q, 4096);
    jw_init(&w, &q);
    jw_obj(&w, NULL);
    if (spx_value(s, "--account")) {
        jw_cstr(&w, "account", spx_value(s, "--account"));
    }
    jw_str(&w, "after", *io_after);
    jw_obj_end(&w);
    int r = call(s, "bucket.list", buf_str(&q), &j, err);
    if (r < 0) {
        return r;
    }
    const struct json *list = json_get(j, "buckets");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *b = json_at(list, i);
        char created[TIME_ISO_SIZE];
        struct str versioning = json_get_str(b, "versioning");
        uint64_t bytes = json_get_u64(b, "bytes", 0);
        struct str name = arena_str_dup(s->arena, json_get_str(b, "name"));
        table_str(t, name);
        table_str(t, arena_str_dup(s->arena, json_get_str(b, "account")));
        table_u64(t, json_get_u64(b, "objects", 0));
        table_num(t, bytes, table_size(s->arena, bytes));
        table_str(t, versioning.n ? arena_str_dup(s->arena, versioning) : STR_NONE);
        table_str(t, arena_str_dup(s->arena, str_c(time_iso_s(json_get_u64(b, "created_ns", 0),
                                                              created))));
        *io_after = name;
    }
    *ret_more = json_get_bool(j, "is_truncated", false) && json_len(list) > 0;
    return 0;
}

int cmd_get_buckets(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"BUCKET", "bucket"}, {"ACCOUNT", "account"},       {"OBJECTS", "objects"},
        {"SIZE", "bytes"},    {"VERSIONING", "versioning"}, {"CREATED", "created"},
    };
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    struct str after = STR("");
    int r = 0;
    for (bool is_more = true; r == 0 && is_more;) {
        r = bucket_page(s, t, &after, &is_more, err);
    }
    if (r == 0) {
        table_print(t, s->is_json);
    }
    return r;
}

/* Drives ----------------------------------------------------------------------------------- */

static struct table *drive_table(struct spx *s, const struct json *j)
{
    static const struct table_col cols[] = {
        {"DRIVE", "drive"},      {"STATE", "state"}, {"USED", "used_bytes"},
        {"SIZE", "total_bytes"}, {"USE", "percent"}, {"READ", "read_us"},
        {"PATH", "path"},        {"WHY", "why"},
    };
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    const struct json *list = json_get(j, "drives");
    for (size_t i = 0; i < json_len(list); i++) {
        const struct json *d = json_at(list, i);
        uint64_t total = json_get_u64(d, "total_bytes", 0);
        uint64_t used = total - MIN(total, json_get_u64(d, "available_bytes", 0));
        uint64_t percent = total ? (used * 100 + total / 2) / total : 0;
        uint64_t read_us = json_get_u64(d, "read_ns", 0) / 1000;
        struct str why = json_get_str(d, "why");
        table_u64(t, json_get_u64(d, "drive", 0));
        table_str(t, arena_str_dup(s->arena, json_get_str(d, "state")));
        table_num(t, used, total ? table_size(s->arena, used) : STR_NONE);
        table_num(t, total, total ? table_size(s->arena, total) : STR_NONE);
        table_num(t, percent,
                  total ? arena_fmt(s->arena, "%u%%", (unsigned)percent) : STR_NONE);
        table_num(t, read_us,
                  read_us ? arena_fmt(s->arena, "%" PRIu64 " us", read_us) : STR_NONE);
        table_str(t, arena_str_dup(s->arena, json_get_str(d, "path")));
        table_str(t, why.n ? arena_str_dup(s->arena, why) : STR_NONE);
    }
    return t;
}

static int show_drives(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = call(s, "storage.drives", STR("{}"), &j, err);
    if (r < 0) {
        return r;
    }
    if (!s->is_json) {
        printf(
            "RS(%u,%u): the bytes of a large object lie on %u drives, %u more may be lost\n\n",
            (unsigned)json_get_u64(j, "rs_data", 0), (unsigned)json_get_u64(j, "rs_parity", 0),
            (unsigned)json_get_u64(j, "rs_data", 0), (unsigned)json_get_u64(j, "rs_parity", 0));
    }
    table_print(drive_table(s, j), s->is_json);
    return 0;
}

/* The folder may have to be made: the service has no rights above it. */
static int replace_drive(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    uint64_t n = 0;
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    size_t n_drives = s->cfg->predastore.n_drives;
    if (num_u64(str_c(s->pos[1]), n_drives, &n) < 0 || n == 0) {
        return spx_usage_error(s, "there is no drive '%s': 1 to %zu", s->pos[1], n_drives);
    }
    r = dirs_make_drive(s->cfg, s->cfg->predastore.drives[n - 1], err);
    if (r < 0) {
        return r;
    }
    struct str q = arena_fmt(s->arena, "{\"drive\":%" PRIu64 "}", n);
    r = spx_call(s, SOCKET, "storage.replace", q, -1, LONG_LIMIT, &j, err);
    if (r < 0) {
        return r;
    }
    if (s->is_json) {
        printf("{\"drive\":%" PRIu64 ",\"state\":\"healing\"}\n", n);
    } else {
        printf("drive %" PRIu64 " is taken; it is filled in the background "
               "(spx admin storage drives)\n",
               n);
    }
    return 0;
}

int cmd_storage_drives(struct spx *s, struct err *err)
{
    if (s->n_pos == 0) {
        return show_drives(s, err);
    }
    if (strcmp(s->pos[0], "replace") != 0) {
        return spx_usage_error(s, "'%s' is not what one can do with drives: replace N",
                               s->pos[0]);
    }
    if (s->n_pos < 2) {
        return spx_usage_error(s, "which one? replace N");
    }
    return replace_drive(s, err);
}

/* Rates ------------------------------------------------------------------------------------ */

static const struct {
    const char *key, *title;
    bool is_bytes;
} rates[] = {
    {"requests", "requests", false},
    {"puts", "objects written", false},
    {"gets", "objects read", false},
    {"deletes", "deletes", false},
    {"lists", "lists", false},
    {"bytes_in", "bytes in", true},
    {"bytes_out", "bytes out", true},
    {"commits", "commits", false},
    {"syncs", "syncs", false},
    {"errors_4xx", "errors of clients", false},
    {"errors_5xx", "errors of ours", false},
};

static void print_top(struct spx *s, const struct json *before, const struct json *now,
                      const struct json *drives, uint64_t ns)
{
    static const struct table_col cols[] = {
        {"WHAT", "name"}, {"A SECOND", "per_second"}, {"SINCE START", "total"}};
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    for (size_t i = 0; i < ARRAY_LEN(rates); i++) {
        uint64_t a = json_get_u64(before, rates[i].key, 0);
        uint64_t b = json_get_u64(now, rates[i].key, 0);
        uint64_t rate = ns ? (b - MIN(a, b)) * NS_PER_S / ns : 0;
        table_cstr(t, s->is_json ? rates[i].key : rates[i].title);
        if (rates[i].is_bytes) {
            table_num(t, rate, table_size(s->arena, rate));
            table_num(t, b, table_size(s->arena, b));
        } else {
            table_u64(t, rate);
            table_u64(t, b);
        }
    }
    if (s->is_json) {
        AUTO_BUF out;
        buf_init(&out, 16u << 20);
        buf_addc(&out, "{\"rates\":");
        table_json(t, &out);
        buf_addc(&out, ",\"drives\":");
        table_json(drive_table(s, drives), &out);
        buf_addc(&out, ",\"stats\":");
        json_dump(now, &out);
        buf_addc(&out, "}\n");
        fwrite(out.p, 1, out.n, stdout);
        return;
    }
    table_print(t, false);
    struct str stored = table_size(s->arena, json_get_u64(now, "bytes", 0));
    struct str log = table_size(s->arena, json_get_u64(now, "log_bytes", 0));
    struct str dead = table_size(s->arena, json_get_u64(now, "log_dead_bytes", 0));
    printf("\n%" PRIu64 " objects, %" PRIu64 " versions, %.*s in %" PRIu64
           " buckets; the log: %.*s, %.*s of it can be given back\n\n",
           json_get_u64(now, "objects", 0), json_get_u64(now, "versions", 0), STR_ARG(stored),
           json_get_u64(now, "buckets", 0), STR_ARG(log), STR_ARG(dead));
    table_print(drive_table(s, drives), false);
}

int cmd_top_storage(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *before = NULL;
    AUTO(json_freep) struct json *now = NULL;
    AUTO(json_freep) struct json *drives = NULL;
    uint64_t seconds = 0;
    int r = spx_number(s, "--interval", 1, 60, 1, &seconds);
    r = r ? r : call(s, "storage.stats", STR("{}"), &before, err);
    if (r) {
        return r;
    }
    uint64_t begun = time_mono_ns();
    const struct timespec wait = {.tv_sec = (time_t)seconds};
    nanosleep(&wait, NULL);
    r = call(s, "storage.stats", STR("{}"), &now, err);
    uint64_t ns = time_mono_ns() - begun;
    r = r < 0 ? r : call(s, "storage.drives", STR("{}"), &drives, err);
    if (r == 0) {
        print_top(s, before, now, drives, ns);
    }
    return r;
}

/* Looking after it ------------------------------------------------------------------------- */

/* Exit status 1 when something is wrong: scripts ask so. */
int cmd_storage_check(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = call(s, "storage.check", STR("{}"), &j, err);
    if (r < 0) {
        return r;
    }
    bool is_ok = str_eqc(json_get_str(j, "status"), "ok");
    const struct json *list = json_get(j, "problems");
    if (s->is_json) {
        print_json(j);
    }
    for (size_t i = 0; !s->is_json && i < json_len(list); i++) {
        const struct json *p = json_at(list, i);
        printf("%-8.*s %.*s\n         %.*s\n", STR_ARG(json_get_str(p, "severity")),
               STR_ARG(json_get_str(p, "what")), STR_ARG(json_get_str(p, "hint")));
    }
    if (is_ok && !s->is_json) {
        puts("the object store is well");
    }
    return is_ok ? 0 : fail(err, -EIO, "Degraded", "the object store is not well");
}

static void print_scrub(struct spx *s, const struct json *j)
{
    if (s->is_json) {
        print_json(j);
        return;
    }
    uint64_t begun = json_get_u64(j, "started_ns", 0), ended = json_get_u64(j, "ended_ns", 0);
    bool is_running = json_get_bool(j, "is_running", false);
    char from[TIME_ISO_SIZE], to[TIME_ISO_SIZE];
    if (!begun) {
        puts("nothing was scrubbed yet");
        return;
    }
    struct str bytes = table_size(s->arena, json_get_u64(j, "bytes", 0));
    printf("begun     %s\n%s     %s\nobjects   %" PRIu64 "\nread      %.*s\nbad       %" PRIu64
           "\nrepaired  %" PRIu64 "\nlost      %" PRIu64 "\norphans   %" PRIu64 "\n",
           time_iso_s(begun, from), is_running ? "state" : "ended",
           is_running ? "running" : time_iso_s(ended, to), json_get_u64(j, "objects", 0),
           STR_ARG(bytes), json_get_u64(j, "bad", 0), json_get_u64(j, "repaired", 0),
           json_get_u64(j, "lost", 0), json_get_u64(j, "orphans", 0));
    if (json_get_str(j, "last_lost").n) {
        printf("one lost  %.*s\n", STR_ARG(json_get_str(j, "last_lost")));
    }
}

static int wait_for_scrub(struct spx *s, struct json **io, struct err *err)
{
    struct progress p;
    int r = 0;
    progress_start(&p);
    while (r == 0 && json_get_bool(*io, "is_running", false)) {
        const struct timespec wait = {.tv_nsec = 300000000};
        progress_set(&p, "scrubbing", json_get_u64(*io, "bytes", 0), 0, true);
        nanosleep(&wait, NULL);
        json_free(steal(io));
        r = call(s, "storage.scrub", STR("{\"action\":\"status\"}"), io, err);
    }
    progress_end(&p);
    return r;
}

int cmd_storage_scrub(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    const char *action = s->n_pos ? s->pos[0] : "start";
    bool is_start = strcmp(action, "start") == 0;
    if (!is_start && strcmp(action, "status") != 0) {
        return spx_usage_error(s, "'%s' is neither start nor status", action);
    }
    struct str q = arena_fmt(s->arena, "{\"action\":\"%s\",\"repair\":%s}", action,
                             spx_is_set(s, "--no-repair") ? "false" : "true");
    int r = call(s, "storage.scrub", q, &j, err);
    r = r < 0 || !is_start || spx_is_set(s, "--no-wait") ? r : wait_for_scrub(s, &j, err);
    if (r < 0) {
        return r;
    }
    print_scrub(s, j);
    uint64_t n_lost = json_get_u64(j, "lost", 0);
    return n_lost == 0
               ? 0
               : fail(err, -EIO, "ObjectsLost", "%" PRIu64 " objects cannot be read", n_lost);
}

/* A running store notes it for its next start; one that does not run finds the same note. */
int cmd_storage_rebuild_index(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    struct err e = ERR_INIT;
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    r = call(s, "storage.rebuild_index", STR("{}"), &j, &e);
    bool is_running = r == 0;
    if (r == -ENOTCONN) {
        const char *path = config_data_path(s->arena, s->cfg, REBUILD_FILE);
        AUTO_FD fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (fd < 0 || fsync(fd) < 0) {
            return fail(err, -errno, "WriteFailed", "%s: %m", path);
        }
        r = dirs_give(s->cfg, REBUILD_FILE, CONFIG_UID_PREDASTORE, err);
    } else if (r < 0) {
        return fail(err, r, e.name, "%s", e.msg);
    }
    if (r < 0) {
        return r;
    }
    if (s->is_json) {
        printf("{\"needs_restart\":%s}\n", is_running ? "true" : "false");
    } else {
        puts(is_running
                 ? "the index is made again when predastore starts next: make down and up, "
                   "or systemctl restart spx-predastore"
                 : "the index is made again when predastore starts");
    }
    return 0;
}

int cmd_storage_compact(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    int r = spx_call(s, SOCKET, "storage.compact", STR("{}"), -1, LONG_LIMIT, &j, err);
    if (r < 0) {
        return r;
    }
    uint64_t freed = json_get_u64(j, "freed", 0);
    if (s->is_json) {
        printf("{\"freed_bytes\":%" PRIu64 "}\n", freed);
    } else {
        struct str text = table_size(s->arena, freed);
        printf("%.*s given back\n", STR_ARG(text));
    }
    return 0;
}
