#include "compute/guest_dir.h"
#include "base/file.h"
#include "base/num.h"
#include "codec/json.h"
#include "model/keys.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>

#define NOTE_VERSION  1u
#define MAX_GUESTS    1024u
#define LONGEST_NAME  "/console.sock"
#define SUN_PATH_SIZE 108

bool guest_id_is_ok(struct str id)
{
    return id.n < GUEST_ID_MAX && id_is_wellformed(id, "i");
}

int guest_run_path(const struct guest_dirs *d, const char *id, char ret[GUEST_PATH_MAX],
                   struct err *err)
{
    int n = snprintf(ret, GUEST_PATH_MAX, "%s/guest/%s", d->run_dir, id);
    if (n < 0 || n >= GUEST_PATH_MAX || (size_t)n + sizeof(LONGEST_NAME) > SUN_PATH_SIZE) {
        return fail(err, -ENAMETOOLONG, "BadConfig",
                    "the run folder's name \"%s\" is too long for sockets", d->run_dir);
    }
    return 0;
}

int guest_data_path(const struct guest_dirs *d, const char *id, char ret[GUEST_DATA_PATH_MAX],
                    struct err *err)
{
    if (snprintf(ret, GUEST_DATA_PATH_MAX, "%s/compute/%s", d->data_dir, id) >=
        GUEST_DATA_PATH_MAX) {
        return fail(err, -ENAMETOOLONG, "BadConfig",
                    "the data folder's name \"%s\" is too long", d->data_dir);
    }
    return 0;
}

int guest_note_write(const struct guest_dirs *d, const struct guest_note *n, struct err *err)
{
    char dir[GUEST_PATH_MAX], path[GUEST_PATH_MAX + 16];
    int r = guest_run_path(d, n->id, dir, err);
    if (r < 0) {
        return r;
    }
    (void)snprintf(path, sizeof(path), "%s/note.json", dir);
    AUTO_BUF b;
    buf_init(&b, 4096);
    struct jw w;
    jw_init(&w, &b);
    jw_obj(&w, NULL);
    jw_u64(&w, "v", NOTE_VERSION);
    jw_cstr(&w, "id", n->id);
    jw_cstr(&w, "account", n->account);
    jw_cstr(&w, "boot_id", n->boot_id);
    jw_cstr(&w, "arch", n->arch);
    jw_cstr(&w, "accel", n->accel);
    jw_u64(&w, "uid_slot", n->uid_slot);
    jw_u64(&w, "uid", n->uid);
    jw_u64(&w, "monitor_pid", (uint64_t)n->monitor.pid);
    jw_u64(&w, "monitor_start", n->monitor.start);
    jw_u64(&w, "qemu_pid", (uint64_t)n->qemu.pid);
    jw_u64(&w, "qemu_start", n->qemu.start);
    jw_obj_end(&w);
    return file_write_atomic(path, buf_str(&b), 0600, err);
}

static void copy(char *to, size_t size, struct str from)
{
    (void)snprintf(to, size, "%.*s", STR_ARG(from));
}

int guest_note_read(const struct guest_dirs *d, const char *id, struct guest_note *ret,
                    struct err *err)
{
    char dir[GUEST_PATH_MAX], path[GUEST_PATH_MAX + 16];
    int r = guest_run_path(d, id, dir, err);
    if (r < 0) {
        return r;
    }
    (void)snprintf(path, sizeof(path), "%s/note.json", dir);
    AUTO_FREE char *text = NULL;
    size_t n = 0;
    r = file_read(path, 4096, &text, &n, err);
    if (r < 0) {
        return r;
    }
    AUTO(json_freep) struct json *j = NULL;
    r = json_parse(str_n(text, n), &j, err);
    if (r < 0) {
        return r;
    }
    if (json_get_u64(j, "v", 0) != NOTE_VERSION || !str_eqc(json_get_str(j, "id"), id)) {
        return fail(err, -EINVAL, "BadNote", "%s is of another version or instance", path);
    }
    struct guest_note note = {
        .uid_slot = json_get_u64(j, "uid_slot", 0),
        .uid = (uid_t)json_get_u64(j, "uid", 0),
        .monitor = {.pid = (pid_t)json_get_u64(j, "monitor_pid", 0),
                    .start = json_get_u64(j, "monitor_start", 0)},
        .qemu = {.pid = (pid_t)json_get_u64(j, "qemu_pid", 0),
                 .start = json_get_u64(j, "qemu_start", 0)},
    };
    copy(note.id, sizeof(note.id), json_get_str(j, "id"));
    copy(note.account, sizeof(note.account), json_get_str(j, "account"));
    copy(note.boot_id, sizeof(note.boot_id), json_get_str(j, "boot_id"));
    copy(note.arch, sizeof(note.arch), json_get_str(j, "arch"));
    copy(note.accel, sizeof(note.accel), json_get_str(j, "accel"));
    *ret = note;
    return 0;
}

static int cmp_ids(const void *a, const void *b)
{
    return str_cmp(*(const struct str *)a, *(const struct str *)b);
}

int guest_dir_list(const struct guest_dirs *d, struct arena *a, struct str **ret_ids,
                   size_t *ret_n, struct err *err)
{
    char path[GUEST_DATA_PATH_MAX];
    (void)snprintf(path, sizeof(path), "%s/guest", d->run_dir);
    *ret_n = 0;
    DIR *dir = opendir(path);
    if (!dir) {
        return errno == ENOENT ? 0 : fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    struct str *ids = arena_array(a, MAX_GUESTS, sizeof(*ids));
    size_t n = 0;
    const struct dirent *e;
    while (ids && (e = readdir(dir)) && n < MAX_GUESTS) {
        struct str id = str_c(e->d_name);
        if (guest_id_is_ok(id)) {
            ids[n] = arena_str_dup(a, id);
            n += str_is_set(ids[n]) ? 1 : 0;
        }
    }
    closedir(dir);
    if (!ids) {
        return fail(err, -ENOMEM, "OpenFailed", "no memory for the list of guests");
    }
    qsort(ids, n, sizeof(*ids), cmp_ids);
    *ret_ids = ids;
    *ret_n = n;
    return 0;
}

int guest_pid_read(const struct guest_dirs *d, const char *id, pid_t *ret)
{
    char dir[GUEST_PATH_MAX], path[GUEST_PATH_MAX + 16], text[32];
    int r = guest_run_path(d, id, dir, NULL);
    if (r < 0) {
        return r;
    }
    (void)snprintf(path, sizeof(path), "%s/qemu.pid", dir);
    AUTO_FD fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    ssize_t n = read(fd, text, sizeof(text));
    uint64_t pid = 0;
    if (n <= 0 || num_u64(str_trim(str_n(text, (size_t)n)), INT32_MAX, &pid) < 0 || pid == 0) {
        return -ENOENT;
    }
    *ret = (pid_t)pid;
    return 0;
}

static void remove_all(const char *dir, const char *const *names, size_t n)
{
    char path[GUEST_DATA_PATH_MAX + 32];
    for (size_t i = 0; i < n; i++) {
        (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
        (void)unlink(path);
    }
    (void)rmdir(dir);
}

void guest_run_remove(const struct guest_dirs *d, const char *id)
{
    /* The note last: while it is there, the folder is found again. */
    static const char *const names[] = {"mon.sock", "qmp.sock",    "console.sock",
                                        "qemu.pid", "monitor.log", "note.json"};
    char dir[GUEST_PATH_MAX];
    if (guest_id_is_ok(str_c(id)) && guest_run_path(d, id, dir, NULL) == 0) {
        remove_all(dir, names, ARRAY_LEN(names));
    }
}

void guest_data_remove(const struct guest_dirs *d, const char *id)
{
    static const char *const names[] = {"console.log", "console.log.1", "vars.fd"};
    char dir[GUEST_DATA_PATH_MAX];
    if (guest_id_is_ok(str_c(id)) && guest_data_path(d, id, dir, NULL) == 0) {
        remove_all(dir, names, ARRAY_LEN(names));
    }
}
