#include "os/qmp.h"
#include <assert.h>
#include <errno.h>

struct qmp {
    struct buf line; /* the piece after the last newline */
    size_t max_line;
    int broken; /* negative errno of the failure that ended this stream */
};

struct qmp *qmp_new(size_t max_line)
{
    struct qmp *q = calloc(1, sizeof(*q));
    if (!q) {
        abort();
    }
    q->max_line = max_line;
    buf_init(&q->line, max_line);
    return q;
}

void qmp_free(struct qmp *q)
{
    if (!q) {
        return;
    }
    buf_done(&q->line);
    free(q);
}

static uint64_t msg_id(const struct json *root)
{
    const struct json *id = json_get(root, "id");
    if (json_type(id) != JSON_T_INT) {
        return QMP_NO_ID;
    }
    return json_get_u64(root, "id", QMP_NO_ID);
}

static int classify(const struct json *root, struct qmp_msg *ret, struct err *err)
{
    struct qmp_msg m = {.id = QMP_NO_ID};
    if (json_type(root) != JSON_T_OBJECT) {
        return fail(err, -EPROTO, "BadQmp", "a QMP line is not an object");
    }
    const struct json *error = json_get(root, "error");
    if (json_type(json_get(root, "event")) == JSON_T_STR) {
        m.type = QMP_EVENT;
        m.name = json_get_str(root, "event");
        m.data = json_get(root, "data");
    } else if (json_type(error) == JSON_T_OBJECT) {
        m.type = QMP_ERROR;
        m.id = msg_id(root);
        m.name = json_get_str(error, "class");
        m.desc = json_get_str(error, "desc");
    } else if (json_get(root, "return")) {
        m.type = QMP_RETURN;
        m.id = msg_id(root);
        m.data = json_get(root, "return");
    } else if (json_type(json_get(root, "QMP")) == JSON_T_OBJECT) {
        m.type = QMP_GREETING;
        m.data = json_get(root, "QMP");
    } else {
        return fail(err, -EPROTO, "BadQmp", "a QMP line is neither event, answer nor greeting");
    }
    *ret = m;
    return 0;
}

static int take_line(struct qmp *q, struct str line, qmp_fn fn, void *ctx, struct err *err)
{
    line = str_trim(line);
    if (str_is_empty(line)) {
        return 0;
    }
    AUTO(json_freep) struct json *root = NULL;
    struct err why = ERR_INIT;
    if (json_parse(line, &root, &why) < 0) {
        q->broken = -EPROTO;
        return fail(err, -EPROTO, "BadQmp", "a QMP line is not JSON: %s", why.msg);
    }
    struct qmp_msg m;
    int r = classify(root, &m, err);
    if (r < 0) {
        q->broken = r;
        return r;
    }
    return fn(ctx, &m);
}

int qmp_feed(struct qmp *q, struct str bytes, qmp_fn fn, void *ctx, struct err *err)
{
    if (q->broken) {
        return fail(err, q->broken, "BadQmp", "this QMP stream has failed before");
    }
    while (bytes.n) {
        ptrdiff_t nl = str_find(bytes, '\n', 0);
        size_t n = nl < 0 ? bytes.n : (size_t)nl;
        if (q->line.n + n > q->max_line) {
            q->broken = -EMSGSIZE;
            return fail(err, -EMSGSIZE, "BadQmp", "a QMP line is longer than %zu bytes",
                        q->max_line);
        }
        buf_add(&q->line, str_n(bytes.p, n));
        if (!buf_ok(&q->line)) {
            q->broken = -ENOMEM;
            return fail(err, -ENOMEM, "BadQmp", "no memory for a QMP line");
        }
        if (nl < 0) {
            return 0;
        }
        bytes = str_skip(bytes, n + 1);
        int r = take_line(q, buf_str(&q->line), fn, ctx, err);
        buf_clear(&q->line);
        if (r < 0) {
            return r;
        }
    }
    return 0;
}

void qmp_command(struct buf *out, const char *name, uint64_t id, struct str args)
{
    assert(id < INT64_MAX);
    struct jw w;
    jw_init(&w, out);
    jw_obj(&w, NULL);
    jw_cstr(&w, "execute", name);
    jw_u64(&w, "id", id);
    if (str_is_set(args)) {
        jw_raw(&w, "arguments", args);
    }
    jw_obj_end(&w);
    buf_add_char(out, '\n');
}
