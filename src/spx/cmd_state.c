/* The store, for the person who must look. */
#include "base/file.h"
#include "codec/base64.h"
#include "codec/json.h"
#include "kv/kv_admin.h"
#include "spx/cmds.h"
#include "spx/data.h"
#include "spx/dirs.h"
#include "spx/table.h"
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <sys/stat.h>

#define DUMP_HEAD "{\"spinifex-dump\":1}\n"
#define MAX_LINE  (8u << 20)

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

/* A dump is text: a head line, then one line {"k": base64, "v": base64} an item. */
struct dumper {
    FILE *to;
    uint64_t n;
};

static int dump_one(void *ctx, const struct kv_item *item, struct err *err)
{
    struct dumper *d = ctx;
    AUTO_BUF line;
    if (item->lease) {
        return 0; /* what a running service says of itself; it will say it again */
    }
    buf_init(&line, MAX_LINE);
    buf_addc(&line, "{\"k\":\"");
    base64_encode(item->key, &line);
    buf_addc(&line, "\",\"v\":\"");
    base64_encode(item->value, &line);
    buf_addc(&line, "\"}\n");
    if (!buf_ok(&line) || fwrite(line.p, 1, line.n, d->to) != line.n) {
        return fail(err, -EIO, "WriteFailed", "writing the dump failed: %m");
    }
    d->n++;
    return 0;
}

static int close_dump(FILE *f, const char *tmp, const char *path, struct err *err)
{
    int r = fflush(f) != 0 || fsync(fileno(f)) < 0 ? -errno : 0;
    if (fclose(f) != 0 && r == 0) {
        r = -errno;
    }
    if (r == 0 && rename(tmp, path) < 0) {
        r = -errno;
    }
    return r < 0 ? fail(err, r, "WriteFailed", "%s: %m", path) : file_sync_parent(path, err);
}

int cmd_state_dump(struct spx *s, struct err *err)
{
    const char *path = s->pos[0];
    const char *tmp = arena_cstr(s->arena, arena_fmt(s->arena, "%s.new", path));
    int r = spx_state(s, err);
    if (r < 0) {
        return r;
    }
    unlink(tmp);
    int fd = open(tmp, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
    FILE *f = fd >= 0 ? fdopen(fd, "w") : NULL;
    if (!f) {
        return fail(err, -errno, "OpenFailed", "%s: %m", tmp);
    }
    struct dumper d = {.to = f};
    r = fputs(DUMP_HEAD, f) < 0 ? fail(err, -EIO, "WriteFailed", "%s: %m", tmp) : 0;
    r = r < 0 ? r : data_each(s->kv, STR(""), dump_one, &d, err);
    if (r < 0) {
        fclose(f);
        unlink(tmp);
        return r;
    }
    r = close_dump(f, tmp, path, err);
    if (r == 0) {
        fprintf(stderr, "%" PRIu64 " keys in %s (its secrets are wrapped, but keep it safe)\n",
                d.n, path);
    }
    return r;
}

struct restorer {
    FILE *from;
    char *line;
    size_t cap;
    uint64_t n;
    struct arena *a; /* of the current item */
};

static int decode_member(struct arena *a, const struct json *j, const char *member,
                         struct str *ret)
{
    AUTO_BUF out;
    struct str text = json_get_str(j, member);
    buf_init(&out, KV_MAX_VALUE);
    if (!str_is_set(text) || base64_decode(text, &out) < 0) {
        return -EINVAL;
    }
    *ret = arena_str_dup(a, buf_str(&out));
    return str_is_set(*ret) ? 0 : -EINVAL;
}

static int next_item(void *ctx, struct kv_item *ret, struct err *err)
{
    struct restorer *r = ctx;
    AUTO(json_freep) struct json *j = NULL;
    ssize_t n = getline(&r->line, &r->cap, r->from);
    if (n < 0) {
        return feof(r->from) ? 0 : fail(err, -EIO, "ReadFailed", "reading the dump: %m");
    }
    r->n++;
    arena_reset(r->a);
    *ret = (struct kv_item){0};
    if (n > (ssize_t)MAX_LINE ||
        json_parse(str_trim(str_n(r->line, (size_t)n)), &j, NULL) < 0 ||
        decode_member(r->a, j, "k", &ret->key) < 0 || ret->key.n == 0 ||
        ret->key.n > KV_MAX_KEY || decode_member(r->a, j, "v", &ret->value) < 0) {
        return fail(err, -EINVAL, "BadDump", "line %" PRIu64 " of the dump is damaged",
                    r->n + 1);
    }
    return 1;
}

int cmd_state_restore(struct spx *s, struct err *err)
{
    AUTO(kv_closep) struct kv *kv = NULL;
    struct restorer d = {0};
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    d.from = fopen(s->pos[0], "re");
    if (!d.from) {
        return fail(err, -errno, "OpenFailed", "%s: %m", s->pos[0]);
    }
    ssize_t n = getline(&d.line, &d.cap, d.from);
    if (n < 0 || strcmp(d.line, DUMP_HEAD) != 0) {
        r = fail(err, -EINVAL, "BadDump", "%s is no dump of 'spx admin state dump'", s->pos[0]);
    }
    r = r < 0 ? r : dirs_make(s->cfg, err);
    r = r < 0 ? r : kv_open_sqlite(config_data_path(s->arena, s->cfg, DATA_STATE_DB), &kv, err);
    if (r == -EBUSY || r == -EAGAIN) {
        err_hint(err, "stop the cloud first: sudo spx down");
    }
    if (r == 0) {
        d.a = arena_new(KV_MAX_VALUE * 4);
        r = kv_replace(kv, spx_is_set(s, "--force"), next_item, &d, err);
        arena_free(d.a);
        if (r == -EEXIST) {
            err_hint(err, "--force replaces all that is there now");
        }
    }
    kv_close(steal(&kv));
    free(d.line);
    fclose(d.from);
    r = r < 0 ? r : dirs_give(s->cfg, "state", CONFIG_UID_STATE, err);
    if (r == 0) {
        fprintf(stderr, "%" PRIu64 " keys restored\n", d.n);
    }
    return r;
}
