#include "ostore/drive_int.h"

#include "codec/hex.h"
#include "codec/json.h"
#include "crypto/crc.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

/* {"crc32c":"xxxxxxxx","drive":{...}} and a newline; the CRC is over the inner object. */
#define PREFIX    "{\"crc32c\":\""
#define MIDDLE    "\",\"drive\":"
#define SUFFIX    "}\n"
#define FRAME_MIN (sizeof(PREFIX) - 1 + 8 + sizeof(MIDDLE) - 1)

static const char *const state_names[MEMBER_STATE_N] = {"ok", "healing", "faulted", "away"};

static void write_id(struct jw *w, const char *name, const uint8_t id[DRIVE_ID_SIZE])
{
    char text[2 * DRIVE_ID_SIZE + 1];
    hex_encode_to(id, DRIVE_ID_SIZE, text);
    jw_cstr(w, name, text);
}

int drive_table_encode(const struct drive_table *t, struct buf *out)
{
    AUTO_BUF in;
    buf_init(&in, DRIVE_FILE_MAX - 256);
    struct jw w;
    jw_init(&w, &in);
    jw_obj(&w, NULL);
    jw_u64(&w, "version", 1);
    write_id(&w, "set", t->set_id);
    jw_u64(&w, "place", t->place);
    jw_u64(&w, "generation", t->generation);
    jw_bool(&w, "is_new", t->is_new);
    jw_arr(&w, "drives");
    for (unsigned i = 0; i < t->n; i++) {
        jw_obj(&w, NULL);
        write_id(&w, "id", t->v[i].id);
        jw_cstr(&w, "state", state_names[t->v[i].state]);
        jw_u64(&w, "since", t->v[i].since);
        jw_obj_end(&w);
    }
    jw_arr_end(&w);
    jw_obj_end(&w);
    if (!buf_ok(&in)) {
        return -E2BIG;
    }
    buf_fmt(out, PREFIX "%08x" MIDDLE, (unsigned)crc_add(CRC_32C, 0, buf_str(&in)));
    buf_add(out, buf_str(&in));
    buf_addc(out, SUFFIX);
    return buf_ok(out) ? 0 : -E2BIG;
}

static int bad(struct err *err, const char *what)
{
    return fail(err, -EBADMSG, "BadDrive", DRIVE_FILE ": %s", what);
}

static int read_member(const struct json *j, struct member *ret)
{
    struct str state = json_get_str(j, "state");
    if (hex_decode(json_get_str(j, "id"), ret->id, DRIVE_ID_SIZE) < 0) {
        return -EBADMSG;
    }
    ret->since = json_get_u64(j, "since", 0);
    for (unsigned i = 0; i < MEMBER_STATE_N; i++) {
        if (str_eqc(state, state_names[i])) {
            ret->state = (enum member_state)i;
            return 0;
        }
    }
    return -EBADMSG;
}

static int read_object(const struct json *j, struct drive_table *t, struct err *err)
{
    uint64_t version = json_get_u64(j, "version", 0),
             place = json_get_u64(j, "place", UINT64_MAX);
    const struct json *list = json_get(j, "drives");
    size_t n = json_len(list);
    if (version != 1) {
        return fail(err, -ENOTSUP, "BadDrive", DRIVE_FILE " is of version %llu",
                    (unsigned long long)version);
    }
    if (hex_decode(json_get_str(j, "set"), t->set_id, DRIVE_ID_SIZE) < 0 || n < 1 ||
        n > DRIVES_MAX || place >= n || json_type(list) != JSON_T_ARRAY) {
        return bad(err, "set, place or number of drives");
    }
    t->place = (unsigned)place;
    t->n = (unsigned)n;
    t->generation = json_get_u64(j, "generation", 0);
    t->is_new = json_get_bool(j, "is_new", false);
    for (unsigned i = 0; i < t->n; i++) {
        if (read_member(json_at(list, i), &t->v[i]) < 0) {
            return bad(err, "a member of the set");
        }
    }
    return t->generation > 0 ? 0 : bad(err, "generation");
}

int drive_table_decode(struct str text, struct drive_table *ret, struct err *err)
{
    char want[16] = "";
    if (!str_has_prefixc(text, PREFIX) || text.n < FRAME_MIN + sizeof(SUFFIX) ||
        !str_has_suffix(text, STR(SUFFIX)) ||
        !str_has_prefixc(str_skip(text, FRAME_MIN - (sizeof(MIDDLE) - 1)), MIDDLE)) {
        return bad(err, "not in its form");
    }
    struct str in = str_n(text.p + FRAME_MIN, text.n - FRAME_MIN - (sizeof(SUFFIX) - 1));
    (void)snprintf(want, sizeof(want), "%08x", (unsigned)crc_add(CRC_32C, 0, in));
    if (!str_eqc(str_n(text.p + sizeof(PREFIX) - 1, 8), want)) {
        return bad(err, "its checksum does not fit");
    }
    AUTO(json_freep) struct json *j = NULL;
    struct err why = ERR_INIT;
    if (json_parse(in, &j, &why) < 0) {
        return bad(err, "no JSON");
    }
    struct drive_table t = {0};
    int rc = read_object(j, &t, err);
    if (rc == 0) {
        *ret = t;
    }
    return rc;
}

int drive_table_read(struct fault_fs *fs, int root, struct drive_table *ret, struct err *err)
{
    AUTO_FD fd = fault_open(fs, root, DRIVE_FILE, O_RDONLY, 0);
    if (fd < 0) {
        return fail(err, fd, "BadDrive", DRIVE_FILE " cannot be opened (%d)", fd);
    }
    AUTO_FREE char *p = malloc(DRIVE_FILE_MAX + 1);
    ssize_t n = p ? fault_pread(fs, fd, p, DRIVE_FILE_MAX + 1, 0) : -ENOMEM;
    if (n < 0 || n > (ssize_t)DRIVE_FILE_MAX) {
        int rc = n < 0 ? (int)n : -EBADMSG;
        return fail(err, rc, "BadDrive", DRIVE_FILE " cannot be read (%d)", rc);
    }
    return drive_table_decode(str_n(p, (size_t)n), ret, err);
}

int drive_table_write(struct fault_fs *fs, int root, const struct drive_table *t)
{
    AUTO_BUF text;
    buf_init(&text, DRIVE_FILE_MAX);
    int rc = drive_table_encode(t, &text);
    if (rc < 0) {
        return rc;
    }
    AUTO_FD fd = fault_open(fs, root, DRIVE_TMP_FILE, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (fd < 0) {
        return fd;
    }
    rc = fault_pwrite(fs, fd, text.p, text.n, 0);
    rc = rc == 0 ? drive_sync_rc(fault_fdatasync(fs, fd)) : rc;
    rc = rc == 0 ? fault_rename(fs, root, DRIVE_TMP_FILE, DRIVE_FILE) : rc;
    return rc == 0 ? drive_sync_rc(fault_sync_dir(fs, root)) : rc;
}

static int has_entries(int dir, const char *const *allowed, size_t n_allowed, bool *ret)
{
    int fd = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) {
        return -errno;
    }
    DIR *d = fdopendir(fd); /* takes it */
    if (!d) {
        int code = -errno;
        close(fd);
        return code;
    }
    *ret = false;
    for (struct dirent *e = readdir(d); e && !*ret; e = readdir(d)) {
        bool is_allowed = strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0;
        for (size_t i = 0; i < n_allowed; i++) {
            is_allowed = is_allowed || strcmp(e->d_name, allowed[i]) == 0;
        }
        *ret = !is_allowed;
    }
    closedir(d);
    return 0;
}

int drive_is_empty(int root, bool *ret)
{
    /* What a file system has by itself, and what a start that was cut short leaves. */
    static const char *const allowed[] = {"lost+found", DRIVE_TMP_FILE};
    bool has = false;
    int rc = has_entries(root, allowed, ARRAY_LEN(allowed), &has);
    *ret = !has;
    return rc;
}
