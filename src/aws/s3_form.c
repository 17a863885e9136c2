#include "aws/s3_form.h"

#include "aws/s3_form_int.h"
#include "base/macro.h"
#include <errno.h>

enum { MAX_ARENA = 256 << 10, MAX_HEADER = 8 << 10 };

static int malformed(struct err *err)
{
    return fail(err, -EINVAL, "MalformedPOSTRequest",
                "The body of your POST request is not well-formed multipart/form-data.");
}
static int too_much(struct err *err)
{
    return fail(err, -E2BIG, "MaxPostPreDataLengthExceededError",
                "Your POST request fields preceeding the upload file was too large.");
}

/* ---- parameters of a header ---- */

/* The parameter of that name behind the first ';'. Quoted: only '\"' is an escape, as browsers
 * send back slashes of Windows paths as they are. */
static struct str param(struct arena *a, struct str header, const char *name)
{
    struct str rest = str_skip(header, str_cut(header, ';').n);
    /* Each parameter is looked for in all that follows: not in a header of any length. */
    rest.n = header.n > MAX_HEADER ? 0 : rest.n;
    while (rest.n) {
        rest = str_trim(str_skip(rest, 1));
        struct str have = str_trim(str_cut(rest, '='));
        ptrdiff_t semi = str_find(rest, ';', 0), eq = str_find(rest, '=', 0);
        if (eq < 0 || (semi >= 0 && semi < eq)) {
            rest = semi < 0 ? STR("") : str_skip(rest, (size_t)semi);
            continue;
        }
        rest = str_skip(rest, (size_t)eq + 1);
        char *p = arena_alloc(a, rest.n + 1);
        size_t n = 0, i = 0;
        if (!p) {
            return STR_NONE;
        }
        if (rest.n && rest.p[0] == '"') {
            for (i = 1; i < rest.n && rest.p[i] != '"'; i++) {
                i += rest.p[i] == '\\' && i + 1 < rest.n && rest.p[i + 1] == '"' ? 1 : 0;
                p[n++] = rest.p[i];
            }
        }
        ptrdiff_t end = str_find(rest, ';', MIN(i, rest.n));
        if (i == 0) {
            struct str v = str_trim(end < 0 ? rest : str_n(rest.p, (size_t)end));
            memcpy(p, v.n ? v.p : "", v.n);
            n = v.n;
        }
        if (str_ieqc(have, name)) {
            return str_n(p, n);
        }
        rest = end < 0 ? STR("") : str_skip(rest, (size_t)end);
    }
    return STR_NONE;
}

static bool is_boundary(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        char c = s.p[i];
        bool is_alnum =
            (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (!is_alnum && !(c && strchr("'()+_,-./:=? ", c))) {
            return false;
        }
    }
    return s.n > 0 && s.n <= S3_FORM_BOUNDARY_MAX && s.p[s.n - 1] != ' ';
}

int s3_form_new(struct str content_type, struct s3_form **ret, struct err *err)
{
    struct str type = str_trim(str_cut(content_type, ';'));
    if (!str_ieqc(type, "multipart/form-data")) {
        return fail(err, -EINVAL, "PreconditionFailed",
                    "Bucket POST must be of the enclosure-type multipart/form-data");
    }
    struct s3_form *f = calloc(1, sizeof(*f));
    if (!f) {
        return fail(err, -ENOMEM, "InternalError", "no memory");
    }
    f->a = arena_new(MAX_ARENA);
    buf_init(&f->part, S3_FORM_FIELDS_MAX);
    struct str boundary = param(f->a, content_type, "boundary");
    if (!is_boundary(boundary)) {
        s3_form_free(f);
        return malformed(err);
    }
    memcpy(f->delim, "\r\n--", 4);
    memcpy(f->delim + 4, boundary.p, boundary.n);
    f->n_delim = 4 + boundary.n;
    f->n_match = 2; /* the first boundary needs no line end before it */
    f->filename = f->file_type = STR_NONE;
    *ret = f;
    return 0;
}

void s3_form_free(struct s3_form *f)
{
    if (f) {
        arena_free(f->a);
        buf_done(&f->part);
        free(f);
    }
}

/* ---- parts ---- */

static struct str header_of(struct str head, const char *name)
{
    struct str rest = head, line;
    while (str_is_set(rest) && str_next(&rest, '\n', &line)) {
        struct str have = str_cut(line, ':');
        if (have.n < line.n && str_ieqc(str_trim(have), name)) {
            return str_trim(str_skip(line, have.n + 1));
        }
    }
    return STR_NONE;
}

static bool has_bad_byte(struct str s)
{
    for (size_t i = 0; i < s.n; i++) {
        if ((unsigned char)s.p[i] < 0x20 || s.p[i] == 0x7f) {
            return true;
        }
    }
    return false;
}

/* The headers of a part are complete. */
static int begin_part(struct s3_form *f, struct err *err)
{
    struct str head = buf_str(&f->part);
    struct str disposition = header_of(head, "Content-Disposition");
    if (!str_ieqc(str_trim(str_cut(disposition, ';')), "form-data")) {
        return malformed(err);
    }
    f->name = param(f->a, disposition, "name");
    if (f->name.n == 0 || has_bad_byte(f->name)) {
        return malformed(err);
    }
    if (!str_ieqc(f->name, "file")) {
        f->at = S3_FORM_AT_VALUE;
        buf_clear(&f->part);
        return 0;
    }
    struct str filename = param(f->a, disposition, "filename");
    for (size_t i = filename.n; i > 0; i--) {
        if (filename.p[i - 1] == '/' || filename.p[i - 1] == '\\') {
            filename = str_skip(filename, i);
            break;
        }
    }
    f->filename = str_is_set(filename) ? filename : STR("");
    f->file_type = arena_str_dup(f->a, header_of(head, "Content-Type"));
    f->has_file = true;
    f->at = S3_FORM_AT_FILE;
    buf_clear(&f->part);
    return 0;
}

static int end_field(struct s3_form *f, struct err *err)
{
    for (size_t i = 0; i < f->n_fields; i++) {
        /* A policy could be held against the one and the other be used. */
        if (str_ieq(f->fields[i].name, f->name)) {
            return fail(err, -EINVAL, "InvalidArgument", "The form has the field '%.*s' twice.",
                        STR_ARG(f->name));
        }
    }
    if (f->n_fields == S3_FORM_N_FIELDS_MAX) {
        return too_much(err);
    }
    struct str value = arena_str_dup(f->a, buf_str(&f->part));
    if (!value.p) {
        return too_much(err);
    }
    f->fields[f->n_fields++] = (struct s3_form_field){f->name, value};
    buf_clear(&f->part);
    return 0;
}

/* A boundary was seen. */
static int at_boundary(struct s3_form *f, struct err *err)
{
    int rc = f->at == S3_FORM_AT_VALUE ? end_field(f, err) : 0;
    f->at = f->at == S3_FORM_AT_FILE ? S3_FORM_AT_AFTER : S3_FORM_AT_MARK;
    f->n_mark = f->n_match = 0;
    return rc;
}

/* ---- bytes ---- */

/* Takes bytes up to the next boundary, or as far as the input goes: *ret_run is what lies before
 * it. Only the first byte of the delimiter is a CR, so that a match that fails begins anew at the
 * byte that failed. */
static int take_content(struct s3_form *f, struct str *in, struct str *ret_run, struct err *err)
{
    *ret_run = STR("");
    if (f->n_match == 0) {
        const char *cr = memchr(in->p, '\r', in->n);
        *ret_run = str_n(in->p, cr ? (size_t)(cr - in->p) : in->n);
        *in = str_skip(*in, ret_run->n);
        if (ret_run->n || !in->n) {
            return 0;
        }
    }
    while (in->n && f->n_match < f->n_delim) {
        if (in->p[0] != f->delim[f->n_match]) {
            *ret_run = str_n(f->delim, f->n_match);
            f->n_match = 0;
            return 0;
        }
        f->n_match++;
        *in = str_skip(*in, 1);
    }
    return f->n_match == f->n_delim ? at_boundary(f, err) : 0;
}

/* Behind a boundary: "--" ends the form, a line end begins a part. Spaces may stand between
 * (RFC 2046 section 5.1.1). */
static int take_mark(struct s3_form *f, struct str *in, struct err *err)
{
    char c = in->p[0];
    *in = str_skip(*in, 1);
    if (f->n_mark == 0 && (c == ' ' || c == '\t')) {
        return ++f->n_fields_size > S3_FORM_FIELDS_MAX ? too_much(err) : 0;
    }
    f->mark[f->n_mark++] = c;
    if (f->n_mark < 2) {
        return c == '\r' || c == '-' ? 0 : malformed(err);
    }
    if (memcmp(f->mark, "--", 2) == 0) {
        f->was_final = true;
        f->at = S3_FORM_AT_AFTER;
        return 0;
    }
    f->at = S3_FORM_AT_HEAD;
    buf_clear(&f->part);
    return memcmp(f->mark, "\r\n", 2) == 0 ? 0 : malformed(err);
}

/* The bytes of all that comes before the file have one limit. */
static int take_head(struct s3_form *f, struct str *in, struct err *err)
{
    while (in->n && f->at == S3_FORM_AT_HEAD) {
        if (++f->n_fields_size > S3_FORM_FIELDS_MAX) {
            return too_much(err);
        }
        buf_add_char(&f->part, in->p[0]);
        *in = str_skip(*in, 1);
        struct str s = buf_str(&f->part);
        if (str_has_suffix(s, STR("\r\n\r\n"))) {
            int rc = begin_part(f, err);
            if (rc < 0) {
                return rc;
            }
        } else if (str_eqc(s, "\r\n")) {
            return malformed(err); /* no headers: no name */
        }
    }
    return 0;
}

static int take_value(struct s3_form *f, struct str *in, struct err *err)
{
    struct str run;
    int rc = take_content(f, in, &run, err);
    f->n_fields_size += run.n;
    if (rc == 0 && f->n_fields_size > S3_FORM_FIELDS_MAX) {
        return too_much(err);
    }
    if (f->at == S3_FORM_AT_VALUE) {
        buf_add(&f->part, run);
    }
    return rc < 0 || buf_ok(&f->part) ? rc : too_much(err);
}

int s3_form_next(struct s3_form *f, struct str *in, struct str *ret_run, struct err *err)
{
    *ret_run = STR("");
    bool had_file = f->has_file;
    int rc = 0;
    while (rc == 0 && in->n && ret_run->n == 0 && f->has_file == had_file) {
        switch (f->at) {
        case S3_FORM_AT_START:
        case S3_FORM_AT_VALUE: rc = take_value(f, in, err); break;
        case S3_FORM_AT_MARK: rc = take_mark(f, in, err); break;
        case S3_FORM_AT_HEAD: rc = take_head(f, in, err); break;
        case S3_FORM_AT_FILE: rc = take_content(f, in, ret_run, err); break;
        case S3_FORM_AT_AFTER: *in = str_skip(*in, in->n); break;
        }
    }
    return rc;
}

int s3_form_end(struct s3_form *f, struct err *err)
{
    if (f->at == S3_FORM_AT_AFTER && f->has_file) {
        return 0;
    }
    if (f->at == S3_FORM_AT_AFTER && f->was_final) {
        return fail(err, -EINVAL, "InvalidArgument",
                    "POST requires exactly one file upload per request.");
    }
    return malformed(err);
}

/* ---- what came ---- */

enum s3_form_state s3_form_state(const struct s3_form *f)
{
    return !f->has_file               ? S3_FORM_FIELDS
           : f->at == S3_FORM_AT_FILE ? S3_FORM_FILE
                                      : S3_FORM_AFTER;
}

struct str s3_form_get(const struct s3_form *f, const char *name)
{
    for (size_t i = 0; i < f->n_fields; i++) {
        if (str_ieqc(f->fields[i].name, name)) {
            return f->fields[i].value;
        }
    }
    return STR_NONE;
}
size_t s3_form_n_fields(const struct s3_form *f)
{
    return f->n_fields;
}
struct str s3_form_name(const struct s3_form *f, size_t idx)
{
    return f->fields[idx].name;
}
struct str s3_form_value(const struct s3_form *f, size_t idx)
{
    return f->fields[idx].value;
}
struct str s3_form_filename(const struct s3_form *f)
{
    return f->filename;
}
struct str s3_form_file_type(const struct s3_form *f)
{
    return f->file_type;
}
