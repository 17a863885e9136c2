/* The store, for the person who must look. */
#include "base/file.h"
#include "base/time.h"
#include "codec/json.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>

#define MAX_LINE   (8u << 20)
#define DUMP_LIMIT (600 * NS_PER_S)

int cmd_state_get(struct spx *s, struct err *err)
{
    struct kv_item item;
    int r = spx_state(s, err);
    r = r < 0 ? r : kv_get(s->kv, s->arena, str_c(s->pos[0]), &item, err);
    if (r < 0) {
        return r;
    }
    if (!s->is_json) {
        printf("%.*s\n", STR_ARG(item.value));
        return 0;
    }
    AUTO_BUF out;
    AUTO(json_freep) struct json *j = NULL;
    struct jw w;
    buf_init(&out, MAX_LINE);
    jw_init(&w, &out);
    jw_obj(&w, NULL);
    jw_str(&w, "key", item.key);
    jw_u64(&w, "create_rev", item.create_rev);
    jw_u64(&w, "mod_rev", item.mod_rev);
    jw_u64(&w, "lease", item.lease);
    if (json_parse(item.value, &j, NULL) == 0) {
        jw_raw(&w, "value", item.value);
    } else {
        jw_str(&w, "value", item.value);
    }
    jw_obj_end(&w);
    printf("%s\n", buf_cstr(&out));
    return 0;
}

static int list_one(void *ctx, const struct kv_item *item, struct err *err)
{
    struct table *t = ctx;
    table_str(t, item->key);
    table_u64(t, item->mod_rev);
    table_u64(t, item->value.n);
    table_cstr(t, item->lease ? "yes" : "no");
    return 0;
}

int cmd_state_list(struct spx *s, struct err *err)
{
    static const struct table_col cols[] = {
        {"KEY", "key"}, {"REVISION", "mod_rev"}, {"BYTES", "size"}, {"LEASED", "leased"}};
    struct table *t = table_new(s->arena, cols, ARRAY_LEN(cols));
    int r = spx_state(s, err);
    r = r < 0 ? r : data_each(s->kv, str_c(s->n_pos ? s->pos[0] : ""), list_one, t, err);
    if (r == 0) {
        table_print(t, s->is_json);
    }
    return r;
}

/* What the store says of itself: figures of its files, its history and its commits. */
int cmd_state_stats(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    void *pos = NULL;
    struct str name = STR_NONE;
    struct json *value = NULL;
    int r = spx_call(s, "state.sock", "stats", STR("{}"), -1, 10 * NS_PER_S, &j, err);
    if (r < 0) {
        return r;
    }
    while (!s->is_json && json_next(j, &pos, &name, &value)) {
        AUTO_BUF text;
        buf_init(&text, 4096);
        json_dump(value, &text);
        printf("%-18.*s %s\n", STR_ARG(name), buf_cstr(&text));
    }
    if (s->is_json) {
        AUTO_BUF text;
        buf_init(&text, 65536);
        json_dump(j, &text);
        printf("%s\n", buf_cstr(&text));
    }
    return 0;
}

static int say_count(struct spx *s, const struct json *j, const char *what, const char *path)
{
    if (s->is_json) {
        printf("{\"keys\":%" PRIu64 ",\"revision\":%" PRIu64 "}\n", json_get_u64(j, "keys", 0),
               json_get_u64(j, "revision", 0));
    } else {
        printf("%" PRIu64 " keys %s %s\n", json_get_u64(j, "keys", 0), what, path);
    }
    return 0;
}

/* Beside its name first: a dump that was cut short never looks like one. */
int cmd_state_dump(struct spx *s, struct err *err)
{
    const char *path = s->pos[0];
    const char *tmp = arena_cstr(s->arena, arena_fmt(s->arena, "%s.new", path));
    AUTO(json_freep) struct json *j = NULL;
    unlink(tmp);
    AUTO_FD fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", tmp);
    }
    int r = spx_call(s, "state.sock", "dump", STR("{}"), fd, DUMP_LIMIT, &j, err);
    if (r == 0 && (fsync(fd) < 0 || rename(tmp, path) < 0)) {
        r = fail(err, -errno, "WriteFailed", "%s: %m", path);
    }
    r = r < 0 ? r : file_sync_parent(path, err);
    if (r < 0) {
        unlink(tmp);
        return r;
    }
    return say_count(s, j, "in", path);
}

int cmd_state_restore(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *j = NULL;
    AUTO_FD fd = open(s->pos[0], O_RDONLY | O_CLOEXEC);
    if (fd < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", s->pos[0]);
    }
    int r = spx_call(s, "state.sock", "restore",
                     spx_is_set(s, "--force") ? STR("{\"is_forced\":true}") : STR("{}"), fd,
                     DUMP_LIMIT, &j, err);
    if (r == -EEXIST) {
        err_hint(err, "--force replaces all that is there now");
    }
    return r < 0 ? r : say_count(s, j, "restored from", s->pos[0]);
}
