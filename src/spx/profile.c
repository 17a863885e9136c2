#include "spx/profile.h"
#include "base/arena.h"
#include "base/file.h"
#include "spx/caller.h"
#include <errno.h>
#include <fcntl.h>
#include <grp.h>
#include <limits.h>
#include <pwd.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_FILE (1u << 20)

/* The name in "[ name ]", STR_NONE when the line is no header. Quotes are the CLI's: [profile
 * "x"]. */
static bool is_header(struct str line, const char *section)
{
    line = str_trim(line);
    ptrdiff_t end = str_find(line, ']', 0);
    if (line.n == 0 || line.p[0] != '[' || end < 0) {
        return false;
    }
    struct str have = str_trim(str_n(line.p + 1, (size_t)end - 1));
    struct str want = str_c(section);
    while (have.n && want.n) {
        if (have.p[0] == '"' || have.p[0] == '\'') {
            have = str_skip(have, 1);
        } else if (have.p[0] == ' ' || have.p[0] == '\t') {
            if (want.p[0] != ' ') {
                return false;
            }
            have = str_trim(have);
            want = str_trim(want);
        } else if (have.p[0] != want.p[0]) {
            return false;
        } else {
            have = str_skip(have, 1);
            want = str_skip(want, 1);
        }
    }
    return want.n == 0 && (have.n == 0 || str_eqc(have, "\"") || str_eqc(have, "'"));
}

/* The pair that a line sets, or NULL. Lines that begin with a blank belong to the one before.
 */
static const struct profile_pair *pair_of(struct str line, const struct profile_pair *pairs,
                                          size_t n)
{
    struct str key = str_cut(line, '=');
    if (key.n == line.n) {
        return NULL;
    }
    key = str_trim(key);
    for (size_t i = 0; i < n; i++) {
        if (str_ieqc(key, pairs[i].key)) {
            return &pairs[i];
        }
    }
    return NULL;
}

/* A value of several lines is a table of its own: each further line is indented. */
static void add_pair(struct buf *out, const struct profile_pair *p, const char *eol)
{
    struct str rest = p->value, line = STR_NONE;
    bool is_first = true;
    while (str_is_set(rest) && str_next(&rest, '\n', &line)) {
        if (is_first) {
            buf_fmt(out, line.n ? "%s = %.*s%s" : "%s =%.*s%s", p->key, STR_ARG(line), eol);
        } else {
            buf_fmt(out, "    %.*s%s", STR_ARG(line), eol);
        }
        is_first = false;
    }
}

/* The next line with its end of line; false at the end of the text. */
static bool next_line(struct str *rest, struct str *ret)
{
    if (rest->n == 0) {
        return false;
    }
    ptrdiff_t i = str_find(*rest, '\n', 0);
    *ret = str_n(rest->p, i < 0 ? rest->n : (size_t)i + 1);
    *rest = str_skip(*rest, ret->n);
    return true;
}

/* What Python's configparser, which all AWS tools read with, takes a line for. With an option in
 * front an indented line belongs to it, whatever it looks like. */
enum line_type { LINE_BLANK, LINE_COMMENT, LINE_HEADER, LINE_OPTION, LINE_CONTINUED };
static enum line_type classify(struct str line, bool *has_option)
{
    struct str text = str_trim(line);
    if (text.n == 0) {
        return LINE_BLANK;
    }
    if (text.p[0] == '#' || text.p[0] == ';') {
        return LINE_COMMENT;
    }
    if (*has_option && (line.p[0] == ' ' || line.p[0] == '\t')) {
        return LINE_CONTINUED;
    }
    *has_option = text.p[0] != '[';
    return *has_option ? LINE_OPTION : LINE_HEADER;
}

/* Adds the lines of a section that are not ours to 'out', up to the next header; *ret_end is where
 * the last of them that says something ends. */
static void keep_others(struct str *rest, const struct profile_pair *pairs, size_t n,
                        struct buf *out, size_t *ret_end)
{
    struct str line = STR_NONE;
    bool is_dropped = false, has_option = false;
    for (struct str ahead = *rest; next_line(&ahead, &line); *rest = ahead) {
        enum line_type type = classify(line, &has_option);
        if (type == LINE_HEADER) {
            /* Behind our options an indented header would be a part of the last value. */
            while (rest->p[0] == ' ' || rest->p[0] == '\t') {
                *rest = str_skip(*rest, 1);
            }
            return;
        }
        if (type == LINE_OPTION) {
            is_dropped = pair_of(line, pairs, n) != NULL;
        }
        if (!is_dropped || type == LINE_BLANK || type == LINE_COMMENT) {
            buf_add(out, line);
            *ret_end = type == LINE_BLANK ? *ret_end : out->n;
        }
    }
}

void profile_drop(struct str text, const char *section, struct buf *out)
{
    struct str rest = text.p ? text : STR(""), line = STR_NONE;
    bool is_in = false, has_option = false;
    size_t blank = SIZE_MAX; /* where a blank line in front of the section begins */
    while (next_line(&rest, &line)) {
        enum line_type type = classify(line, &has_option);
        if (type == LINE_HEADER) {
            is_in = is_header(line, section);
        }
        if (!is_in) {
            blank = type == LINE_BLANK ? MIN(blank, out->n) : SIZE_MAX;
            buf_add(out, line);
        }
    }
    if (is_in && blank < out->n) { /* it was the last */
        out->n = blank;
    }
}

void profile_merge(struct str text, const char *section, const struct profile_pair *pairs,
                   size_t n, struct buf *out)
{
    /* As the first line ends. */
    struct str first = str_cut(text, '\n');
    const char *eol = first.n && first.p[first.n - 1] == '\r' ? "\r\n" : "\n";
    struct str rest = text.p ? text : STR(""), line = STR_NONE;
    bool is_found = false, has_option = false;
    while (!is_found && next_line(&rest, &line)) {
        buf_add(out, line);
        is_found = classify(line, &has_option) == LINE_HEADER && is_header(line, section);
    }
    if (out->n && out->p[out->n - 1] != '\n') {
        buf_addc(out, eol);
    }
    if (!is_found) {
        buf_fmt(out, "%s[%s]%s", out->n ? eol : "", section, eol);
    }
    /* Ours come last in the section, so that no indented line of others gets behind one of ours and
     * becomes a part of its value. */
    AUTO_BUF others;
    size_t end = 0;
    buf_init(&others, rest.n);
    if (is_found) {
        keep_others(&rest, pairs, n, &others, &end);
    }
    buf_add(out, str_n(others.p ? others.p : "", end));
    if (end && others.p[end - 1] != '\n') {
        buf_addc(out, eol);
    }
    for (size_t i = 0; i < n; i++) {
        add_pair(out, &pairs[i], eol);
    }
    buf_add(out, str_skip(buf_str(&others), end));
    buf_add(out, rest);
}

int profile_find_user(struct profile_user *ret, struct err *err)
{
    const char *sudo = geteuid() == 0 ? getenv("SUDO_USER") : NULL;
    errno = 0;
    const struct passwd *pw = sudo && sudo[0] ? getpwnam(sudo) : getpwuid(geteuid());
    if (!pw) {
        return fail(err, errno ? -errno : -ENOENT, "NoSuchUser", "there is no user %s",
                    sudo ? sudo : "for this process");
    }
    const char *home = pw->pw_dir;
    if (pw->pw_uid == geteuid() && getenv("HOME") && getenv("HOME")[0] == '/') {
        home = getenv("HOME");
    }
    if (strlen(home) >= sizeof(ret->home) || strlen(pw->pw_name) >= sizeof(ret->name)) {
        return fail(err, -ENAMETOOLONG, "NoSuchUser", "the home of user %s has a long name",
                    pw->pw_name);
    }
    *ret = (struct profile_user){
        .uid = pw->pw_uid, .gid = pw->pw_gid, .is_other = pw->pw_uid != geteuid()};
    memcpy(ret->name, pw->pw_name, strlen(pw->pw_name) + 1);
    memcpy(ret->home, home, strlen(home) + 1);
    return 0;
}

/* Replaces the file, or what it is a link to. */
static int merge_file(const char *path, const char *section, const struct profile_pair *pairs,
                      size_t n, struct err *err)
{
    char real[PATH_MAX];
    AUTO_FREE char *text = NULL;
    size_t len = 0;
    if (!realpath(path, real)) {
        if (errno != ENOENT || strlen(path) >= sizeof(real)) {
            return fail(err, -errno, "OpenFailed", "%s: %m", path);
        }
        memcpy(real, path, strlen(path) + 1);
        char *slash = strrchr(real, '/');
        if (slash && slash != real) {
            *slash = 0;
            int r = file_mkdirs(real, 0755, err);
            if (r < 0) {
                return r;
            }
            *slash = '/';
        }
    } else {
        int r = file_read(real, MAX_FILE, &text, &len, err);
        if (r < 0) {
            return r;
        }
    }
    AUTO_BUF out;
    buf_init(&out, 2 * MAX_FILE);
    profile_merge(str_n(text ? text : "", len), section, pairs, n, &out);
    if (!buf_ok(&out)) {
        return fail(err, -EFBIG, "WriteFailed", "%s is too large", path);
    }
    struct stat st;
    bool is_same = text && str_eq(buf_str(&out), str_n(text, len)) && stat(real, &st) == 0 &&
                   (st.st_mode & 07777) == 0600;
    return is_same ? 0 : file_write_atomic(real, buf_str(&out), 0600, err);
}

struct files {
    char config[PATH_MAX], credentials[PATH_MAX];
};

static int write_both(const void *ctx, const struct files *f, struct err *err)
{
    const struct profile *p = ctx;
    const struct profile_pair conf[] = {
        {"region", str_c(p->region)},
        {"endpoint_url", str_c(p->endpoint)},
        {"ca_bundle", str_c(p->ca_path)},
        /* boto3 would sign URLs for old regions, of which ours bears a name, in the way of 2006. */
        {"s3", STR("\naddressing_style = path\nsignature_version = s3v4")},
    };
    const struct profile_pair cred[] = {
        {"aws_access_key_id", p->access_key},
        {"aws_secret_access_key", p->secret},
        {"aws_session_token", STR_NONE}, /* an old one would spoil the new key */
    };
    char section[80];
    snprintf(section, sizeof(section), "profile %s", p->name);
    int r = merge_file(f->config, section, conf, ARRAY_LEN(conf), err);
    return r < 0 ? r : merge_file(f->credentials, p->name, cred, ARRAY_LEN(cred), err);
}

static int path_of(const struct profile_user *u, const char *env, const char *name, char *ret,
                   size_t size, struct err *err)
{
    char v[PATH_MAX] = "";
    int n = !caller_env(env, v, sizeof(v)) ? snprintf(ret, size, "%s/.aws/%s", u->home, name)
            : v[0] == '~' && v[1] == '/'   ? snprintf(ret, size, "%s%s", u->home, v + 1)
                                           : snprintf(ret, size, "%s", v);
    return n < 0 || (size_t)n >= size ? fail(err, -ENAMETOOLONG, "OpenFailed",
                                             "the name of the AWS %s file is too long", name)
                                      : 0;
}

static int find_files(const struct profile_user *u, struct files *f, struct err *err)
{
    int r = path_of(u, "AWS_CONFIG_FILE", "config", f->config, sizeof(f->config), err);
    return r < 0 ? r
                 : path_of(u, "AWS_SHARED_CREDENTIALS_FILE", "credentials", f->credentials,
                           sizeof(f->credentials), err);
}

/* Calls fn with the rights of that user, new files for him alone. */
static int as_user(const struct profile_user *u, const void *p, const struct files *f,
                   int (*fn)(const void *p, const struct files *f, struct err *err),
                   struct err *err)
{
    gid_t groups[64];
    int n_groups = 0;
    if (u->is_other) {
        n_groups = getgroups(ARRAY_LEN(groups), groups);
        if (n_groups < 0 || initgroups(u->name, u->gid) < 0 || setegid(u->gid) < 0 ||
            seteuid(u->uid) < 0) {
            return fail(err, -errno, "AccessDenied", "becoming user %s: %m", u->name);
        }
    }
    mode_t old = umask(077);
    int r = fn(p, f, err);
    umask(old);
    if (r == -EACCES || r == -EPERM || r == -EROFS) {
        err_hint(err, "the AWS files must be the user's own and writable: ls -la ~/.aws, then "
                      "sudo chown -R USER ~/.aws; or init with --no-profile");
    }
    if (u->is_other &&
        (seteuid(0) < 0 || setegid(0) < 0 || setgroups((size_t)n_groups, groups) < 0)) {
        abort(); /* going on with half of somebody's rights is not safe */
    }
    return r;
}

int profile_write(const struct profile_user *u, const struct profile *p, char *ret_config,
                  char *ret_credentials, size_t path_size, struct err *err)
{
    struct files f;
    int r = find_files(u, &f, err);
    if (r < 0) {
        return r;
    }
    (void)snprintf(ret_config, path_size, "%s", f.config);
    (void)snprintf(ret_credentials, path_size, "%s", f.credentials);
    return as_user(u, p, &f, write_both, err);
}

static int drop_from(const char *path, const char *section, struct err *err)
{
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    AUTO_BUF out;
    char real[PATH_MAX];
    if (!realpath(path, real)) {
        return errno == ENOENT ? 0 : fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    int r = file_read(real, MAX_FILE, &text, &n, err);
    if (r < 0) {
        return r;
    }
    buf_init(&out, MAX_FILE);
    profile_drop(str_n(text, n), section, &out);
    if (!buf_ok(&out) || out.n == n) {
        return 0; /* there is none */
    }
    if (out.n > 0) {
        return file_write_atomic(real, buf_str(&out), 0600, err);
    }
    return unlink(real) == 0 ? 0 : fail(err, -errno, "WriteFailed", "%s: %m", path);
}

static int drop_both(const void *p, const struct files *f, struct err *err)
{
    char section[80], dir[PATH_MAX];
    const char *name = p;
    (void)snprintf(section, sizeof(section), "profile %s", name);
    int r = drop_from(f->config, section, err);
    r = r < 0 ? r : drop_from(f->credentials, name, err);
    (void)snprintf(dir, sizeof(dir), "%s", f->config);
    char *slash = strrchr(dir, '/');
    if (slash && strcmp(slash, "/config") == 0) {
        *slash = '\0';
        (void)rmdir(dir); /* only an empty one goes */
    }
    return r;
}

int profile_remove(const struct profile_user *u, const char *name, struct err *err)
{
    struct files f;
    int r = find_files(u, &f, err);
    return r < 0 ? r : as_user(u, name, &f, drop_both, err);
}

struct str profile_get(struct str text, const char *section, const char *key)
{
    struct str rest = text, line = STR_NONE, found = STR_NONE;
    bool is_in = false, has_option = false;
    while (next_line(&rest, &line)) {
        enum line_type type = classify(line, &has_option);
        if (type == LINE_HEADER) {
            is_in = is_header(line, section);
        } else if (type == LINE_OPTION && is_in) {
            struct str name = str_cut(line, '=');
            if (name.n < line.n && str_ieqc(str_trim(name), key)) {
                found = str_trim(str_skip(line, name.n + 1));
            }
        }
    }
    return found;
}

static const char *or_env(struct arena *a, const char *env, struct str v)
{
    const char *e = env ? getenv(env) : NULL;
    return e && e[0] ? e : arena_cstr(a, str_is_set(v) ? v : STR(""));
}

static struct str read_file(struct arena *a, const struct profile_user *u, const char *env,
                            const char *name)
{
    char path[PATH_MAX];
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    if (path_of(u, env, name, path, sizeof(path), NULL) < 0 ||
        file_read(path, MAX_FILE, &text, &n, NULL) < 0) {
        return STR("");
    }
    return arena_str_dup(a, str_n(text, n));
}

int profile_read(struct arena *a, const struct profile_user *u, const char *name,
                 struct profile_keys *ret, struct err *err)
{
    char section[80];
    snprintf(section, sizeof(section), "profile %s", name);
    struct str conf = read_file(a, u, "AWS_CONFIG_FILE", "config");
    struct str cred = read_file(a, u, "AWS_SHARED_CREDENTIALS_FILE", "credentials");
    if (!getenv("AWS_ACCESS_KEY_ID")) {
        ret->access_key = or_env(a, NULL, profile_get(cred, name, "aws_access_key_id"));
        ret->secret = or_env(a, NULL, profile_get(cred, name, "aws_secret_access_key"));
        ret->token = or_env(a, NULL, profile_get(cred, name, "aws_session_token"));
    } else {
        ret->access_key = or_env(a, "AWS_ACCESS_KEY_ID", STR_NONE);
        ret->secret = or_env(a, "AWS_SECRET_ACCESS_KEY", STR_NONE);
        ret->token = or_env(a, "AWS_SESSION_TOKEN", STR_NONE);
    }
    ret->region = or_env(a, "AWS_REGION", profile_get(conf, section, "region"));
    ret->endpoint = or_env(a, "AWS_ENDPOINT_URL", profile_get(conf, section, "endpoint_url"));
    ret->ca_path = or_env(a, "AWS_CA_BUNDLE", profile_get(conf, section, "ca_bundle"));
    if (!ret->access_key[0] || !ret->secret[0]) {
        fail(err, -ENOENT, "NoCredentials", "there is no access key in the profile '%s'", name);
        err_hint(err, "sudo spx profile write, or set AWS_PROFILE, or AWS_ACCESS_KEY_ID and "
                      "AWS_SECRET_ACCESS_KEY");
        return -ENOENT;
    }
    return 0;
}
