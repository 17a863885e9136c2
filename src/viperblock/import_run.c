#include "viperblock/import_run.h"
#include "base/num.h"
#include "codec/json.h"
#include "loop/child.h"
#include "viperblock/copy.h"
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/wait.h>

#define POLL_MS      200
#define LINE_MAX_LEN 1000u
#define INFO_MAX     (256u << 10)
#define INFO_TIMEOUT (UINT64_C(60) * 1000000000u)

struct child_state {
    const struct import_opts *o;
    void (*on_line)(struct child_state *c, struct str line);
    char line[LINE_MAX_LEN + 1];
    size_t n;
    char last[LINE_MAX_LEN + 1]; /* last line that was no progress */
    bool is_done;
    uint64_t end_offset; /* "check": where the image's last cluster ends */
    struct import_result result;
    struct err err; /* what the child reported */
};

/* "progress READ WRITTEN" | "done FORMAT SIZE SHA256" | "error NAME message" */
static void on_unpack_line(struct child_state *c, struct str line)
{
    struct str word = STR_NONE, a = STR_NONE, b = STR_NONE, rest = line;
    uint64_t n = 0;
    bool has_a = str_next(&rest, ' ', &word) && str_next(&rest, ' ', &a);
    if (has_a && str_eqc(word, "progress") && num_u64(a, UINT64_MAX, &n) == 0) {
        if (c->o->progress) {
            c->o->progress(c->o->ctx, "read", n);
        }
    } else if (has_a && str_eqc(word, "done") && str_next(&rest, ' ', &b)) {
        c->is_done = img_format_parse(a, &c->result.format, NULL) == 0 &&
                     num_u64(b, UINT64_MAX, &c->result.size) == 0 && rest.n == 64;
        memcpy(c->result.sha256, rest.p, MIN(rest.n, (size_t)64));
    } else if (has_a && str_eqc(word, "error")) {
        /* The names that a child may give; whatever else it says is a damaged image. */
        static const struct {
            const char *name;
            int code;
        } names[] = {
            {"BadImage", -EINVAL},   {"UnsupportedImage", -ENOTSUP}, {"ImageTooLarge", -EFBIG},
            {"DiskFull", -ENOSPC},   {"WriteFailed", -EIO},          {"ReadFailed", -EIO},
            {"SandboxFailed", -EIO}, {"NoMemory", -ENOMEM},          {"BadFormat", -EINVAL}};
        size_t i = 0;
        while (i + 1 < ARRAY_LEN(names) && !str_eqc(a, names[i].name)) {
            i++;
        }
        fail(&c->err, names[i].code, names[i].name, "%.*s", STR_ARG(rest));
    }
}

/* qemu-img's "    (12.34/100%)", else a message. */
static void on_convert_line(struct child_state *c, struct str line)
{
    line = str_trim(line);
    uint64_t whole = 0, part = 0;
    struct str rest = str_skip(line, 1), a = str_cut(rest, '.'),
               b = str_cut(str_skip(rest, a.n + 1), '/');
    if (line.n > 0 && line.p[0] == '(' && num_u64(a, 100, &whole) == 0 && b.n > 0 &&
        num_u64(str_n(b.p, 1), 9, &part) == 0) {
        if (c->o->progress) {
            c->o->progress(c->o->ctx, "convert", whole * 10 + part);
        }
    } else if (line.n > 0) {
        snprintf(c->last, sizeof(c->last), "%.*s", STR_ARG(line));
    }
}

/* One line of qemu-img check's JSON, or of a message. */
static void on_check_line(struct child_state *c, struct str line)
{
    static const struct str key = {"\"image-end-offset\": ", 20};
    line = str_trim(line);
    uint64_t n = 0;
    if (str_has_prefix(line, key) &&
        num_u64(str_cut(str_skip(line, key.n), ','), UINT64_MAX, &n) == 0) {
        c->end_offset = n;
    } else if (line.n > 0 && !strchr("{}\"", line.p[0])) {
        snprintf(c->last, sizeof(c->last), "%.*s", STR_ARG(line));
    }
}

static void feed(struct child_state *c, struct str text)
{
    for (size_t i = 0; i < text.n; i++) {
        char ch = text.p[i];
        if (ch == '\n' || ch == '\r') {
            c->on_line(c, str_n(c->line, c->n));
            c->n = 0;
        } else if (c->n < LINE_MAX_LEN) {
            c->line[c->n++] =
                ch >= ' ' && ch < 0x7f ? ch : '?'; /* messages may quote bytes of the image */
        }
    }
}

/* Listens until the child ends; stops it when the caller wants no more or the disk fills up.
 * Reaps it. */
static int follow(struct child_state *c, pid_t pid, int report, int *ret_status,
                  struct err *err)
{
    int rc = 0;
    char buf[4096];
    for (;;) {
        struct pollfd p = {.fd = report, .events = POLLIN};
        int n = poll(&p, 1, POLL_MS);
        if (rc == 0 && c->o->is_cancelled && c->o->is_cancelled(c->o->ctx)) {
            rc = fail(err, -ECANCELED, "Cancelled", "the import was cancelled");
            kill(pid, SIGKILL);
        } else if (rc == 0 && copy_check_room(c->o->folder_fd, 0, err) != 0) {
            rc = -ENOSPC;
            kill(pid, SIGKILL);
        }
        if (n <= 0) {
            continue;
        }
        ssize_t got = read(report, buf, sizeof(buf));
        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            break;
        }
        feed(c, str_n(buf, (size_t)got));
    }
    while (waitpid(pid, ret_status, 0) < 0 && errno == EINTR) {}
    return rc;
}

static int pipe_of(int *ret_read, int *ret_write, struct err *err)
{
    int fds[2];
    if (pipe2(fds, O_CLOEXEC) != 0) {
        return fail(err, -errno, "SpawnFailed", "no pipe: %m");
    }
    *ret_read = fds[0];
    *ret_write = fds[1];
    return 0;
}

static struct child_opts child_of(const char *const *argv)
{
    return (struct child_opts){.argv = argv,
                               .has_new_session = true,
                               .has_no_new_privs = true,
                               .has_no_core = true,
                               .death_signal = SIGKILL,
                               .max_files = 64};
}

static int run_unpack(const struct import_opts *o, int data_fd, int spool_fd,
                      struct import_result *ret, struct err *err)
{
    AUTO_FD report = -1;
    AUTO_FD report_w = -1;
    AUTO_FREE struct child_state *c = calloc(1, sizeof(*c));
    char max[24];
    int rc = c ? pipe_of(&report, &report_w, err) : fail(err, -ENOMEM, "NoMemory", "no memory");
    if (rc != 0) {
        return rc;
    }
    c->o = o;
    c->on_line = on_unpack_line;
    snprintf(max, sizeof(max), "%llu", (unsigned long long)o->max_size);
    const char *argv[] = {o->helper, "unpack", img_format_name(o->format), max, NULL};
    struct child_fd fds[] = {{o->source_fd, 3}, {data_fd, 4}, {spool_fd, 5}, {report_w, 6}};
    struct child_opts co = child_of(argv);
    co.fds = fds;
    co.n_fds = ARRAY_LEN(fds);
    co.err_fd = 2;
    pid_t pid = 0;
    int status = 0;
    rc = child_spawn(&co, &pid, err);
    if (rc != 0) {
        return rc;
    }
    close(steal_fd(&report_w));
    rc = follow(c, pid, report, &status, err);
    if (rc != 0) {
        return rc;
    }
    if (c->err.code != 0) {
        return fail(err, c->err.code, c->err.name, "%s", c->err.msg);
    }
    if (!c->is_done || !WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fail(err, -EINVAL, "BadImage",
                    "reading the image ended with %s %d: it is damaged or too demanding",
                    WIFSIGNALED(status) ? "signal" : "status",
                    WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status));
    }
    *ret = c->result;
    return 0;
}

/* "qemu-img: Could not open 'json:...': Could not open '/path': the reason" -> "the reason" */
static const char *reason(const char *msg)
{
    const char *found = msg;
    for (const char *p = strstr(msg, "': "); p; p = strstr(p + 1, "': ")) {
        found = p + 3;
    }
    return found;
}

/* What qemu-img sees, through the same options: nothing but this file, and a size within the
 * limit. */
static int check_info(const struct import_opts *o, enum img_format f, struct import_result *r,
                      uint64_t *ret_cluster, struct err *err)
{
    AUTO_BUF out;
    AUTO(json_freep) struct json *j = NULL;
    const char *argv[] = {o->helper, "info", img_qemu_driver(f), o->folder, NULL};
    struct child_opts co = child_of(argv);
    buf_init(&out, INFO_MAX);
    int rc = child_run(&co, INFO_TIMEOUT, &out, err);
    if (rc != 0) {
        if (err && err->name && strcmp(err->name, "CommandFailed") == 0) {
            struct err why = *err;
            err_clear(err);
            return fail(err, -EINVAL, "BadImage", "the image cannot be opened as %s: %.300s",
                        img_format_name(f), reason(why.msg));
        }
        return rc;
    }
    rc = json_parse(buf_str(&out), &j, err);
    if (rc != 0) {
        return rc;
    }
    struct json *data = json_get(json_get(j, "format-specific"), "data");
    if (json_get(j, "backing-filename") || json_get(j, "full-backing-filename") ||
        json_get(data, "data-file") || json_get_bool(j, "encrypted", false)) {
        return fail(err, -EINVAL, "BadImage",
                    "the image depends on another file or is encrypted");
    }
    uint64_t size = json_get_u64(j, "virtual-size", 0);
    if (size == 0 || size > o->max_size) {
        return size == 0 ? fail(err, -EINVAL, "BadImage", "the disk in this image has no size")
                         : fail(err, -EFBIG, "ImageTooLarge",
                                "the disk in this image has %llu bytes, the limit is %llu",
                                (unsigned long long)size, (unsigned long long)o->max_size);
    }
    r->size = size;
    *ret_cluster = MAX(json_get_u64(j, "cluster-size", 1), UINT64_C(1));
    return 0;
}

/* Runs the helper with a tool's command and listens to what the tool prints. *ret_status as
 * from waitpid(2). */
static int run_tool(struct child_state *c, const char *const *argv, int *ret_status,
                    struct err *err)
{
    AUTO_FD report = -1;
    AUTO_FD report_w = -1;
    struct child_opts co = child_of(argv);
    pid_t pid = 0;
    int rc = pipe_of(&report, &report_w, err);
    if (rc != 0) {
        return rc;
    }
    co.out_fd = report_w;
    co.err_fd = report_w;
    rc = child_spawn(&co, &pid, err);
    if (rc != 0) {
        return rc;
    }
    close(steal_fd(&report_w));
    return follow(c, pid, report, ret_status, err);
}

static const char *why(const struct child_state *c, int status)
{
    return c->last[0] ? c->last : WIFSIGNALED(status) ? "the tool was killed" : "no message";
}

/* Metadata that contradicts itself, or data that would lie behind the end of the file: a
 * download that was cut short reads as zeros otherwise. Leaked clusters (status 3) are
 * harmless; 63: the format has nothing to check. */
static int run_check(const struct import_opts *o, enum img_format f, uint64_t cluster,
                     struct err *err)
{
    AUTO_FREE struct child_state *c = calloc(1, sizeof(*c));
    const char *argv[] = {o->helper, "check", img_qemu_driver(f), o->folder, NULL};
    struct stat st;
    int status = 0;
    if (!c || fstatat(o->folder_fd, "source", &st, 0) != 0) {
        return fail(err, -EIO, "ReadFailed", "the image's file: %m");
    }
    c->o = o;
    c->on_line = on_check_line;
    int rc = run_tool(c, argv, &status, err);
    if (rc != 0) {
        return rc;
    }
    int exited = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    if (exited != 0 && exited != 3 && exited != 63) {
        return fail(err, -EINVAL, "BadImage", "the image is damaged: %.400s", why(c, status));
    }
    uint64_t size = ((uint64_t)st.st_size + cluster - 1) / cluster *
                    cluster; /* the last cluster may be short */
    if (c->end_offset > size) {
        return fail(err, -EINVAL, "BadImage",
                    "the image is cut short: its data ends at %llu, the file at %llu",
                    (unsigned long long)c->end_offset, (unsigned long long)st.st_size);
    }
    return 0;
}

static int run_convert(const struct import_opts *o, enum img_format f, struct err *err)
{
    AUTO_FREE struct child_state *c = calloc(1, sizeof(*c));
    char max[24];
    int status = 0;
    if (!c) {
        return fail(err, -ENOMEM, "NoMemory", "no memory");
    }
    c->o = o;
    c->on_line = on_convert_line;
    snprintf(max, sizeof(max), "%llu", (unsigned long long)o->max_size);
    const char *argv[] = {o->helper, "convert", img_qemu_driver(f), o->folder, max, NULL};
    int rc = run_tool(c, argv, &status, err);
    if (rc != 0) {
        return rc;
    }
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
        return fail(err, -EINVAL, "BadImage", "converting from %s failed: %.400s",
                    img_format_name(f), why(c, status));
    }
    return 0;
}

int import_run(const struct import_opts *o, struct import_result *ret, struct err *err)
{
    AUTO_FD data = openat(o->folder_fd, "data", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    AUTO_FD spool = openat(o->folder_fd, "source", O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
    if (data < 0 || spool < 0) {
        return fail(err, -errno, "WriteFailed", "the image's files cannot be made: %m");
    }
    struct import_result r = {.format = IMG_UNKNOWN};
    uint64_t cluster = 1;
    int rc = run_unpack(o, data, spool, &r, err);
    if (rc == 0 && r.format != IMG_RAW) {
        rc = img_qemu_driver(r.format) ? check_info(o, r.format, &r, &cluster, err)
                                       : fail(err, -EINVAL, "BadImage", "unknown format");
        rc = rc != 0 ? rc : run_check(o, r.format, cluster, err);
        rc = rc != 0 ? rc : run_convert(o, r.format, err);
    }
    struct stat st = {0};
    if (rc == 0 && (unlinkat(o->folder_fd, "source", 0) != 0 ||
                    fstatat(o->folder_fd, "data", &st, 0) != 0)) {
        rc = fail(err, -errno, "WriteFailed", "the image's files: %m");
    }
    if (rc == 0 && (uint64_t)st.st_size < r.size) {
        rc = fail(err, -EINVAL, "BadImage", "the image holds %llu bytes, its header says %llu",
                  (unsigned long long)st.st_size, (unsigned long long)r.size);
    }
    if (rc == 0) {
        r.size = (uint64_t)st.st_size;
        *ret = r;
    }
    return rc;
}
