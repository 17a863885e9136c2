/* What of the object store is lost for good, and somebody who accepts that. */
#include "base/num.h"
#include "base/time.h"
#include "codec/json.h"
#include "spx/cmds.h"
#include "spx/table.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/file.h>
#include <unistd.h>

#define SOCKET     "predastore.sock"
#define LIMIT_NS   (3600 * NS_PER_S) /* all of the log is read */
#define DRIVE_FILE "drive.json"      /* as in ostore/drive.h */
#define GIVEN_UP   "given-up.json"

/* Who is at the keyboard, as far as it can be told. */
static struct str who(struct spx *s)
{
    const char *sudo = getenv("SUDO_USER");
    const char *login = getlogin();
    return arena_fmt(s->arena, "%.64s%s, uid %u",
                     sudo    ? sudo
                     : login ? login
                             : "somebody",
                     sudo ? " by sudo" : "", (unsigned)getuid());
}

/* "yes", typed whole. */
static int ask(struct spx *s, struct err *err)
{
    char line[16] = "";
    if (spx_is_set(s, "--yes")) {
        return 0;
    }
    printf("Type yes to give this up for good: ");
    (void)fflush(stdout);
    if (!fgets(line, sizeof(line), stdin) || strcmp(line, "yes\n") != 0) {
        return fail(err, -ECANCELED, "Canceled", "nothing was changed");
    }
    return 0;
}

static void print_list(const struct json *list, const char *indent)
{
    for (size_t i = 0; i < json_len(list); i++) {
        printf("%s%.*s\n", indent, STR_ARG(json_str(json_at(list, i))));
    }
}

static int accept_log(struct spx *s, struct err *err)
{
    AUTO(json_freep) struct json *loss = NULL;
    AUTO(json_freep) struct json *done = NULL;
    AUTO_BUF q;
    struct jw w;
    buf_init(&q, 1024);
    int r = spx_call(s, SOCKET, "storage.loss", STR("{}"), -1, LIMIT_NS, &loss, err);
    if (r < 0) {
        return r;
    }
    const struct json *what = json_get(loss, "what"), *names = json_get(loss, "names");
    uint64_t n = json_get_u64(loss, "objects", 0);
    if (json_len(what) == 0) {
        puts("nothing of the log is lost");
        return 0;
    }
    puts("What cannot be read any more, on any drive:");
    print_list(what, "  ");
    if (n) {
        printf("Objects, versions and parts that are lost with it: %" PRIu64 "\n", n);
        print_list(names, "  ");
    } else {
        puts("The index does not know what that was.");
    }
    puts("Objects that were deleted or overwritten there may be back as they were before.\n"
         "If a drive is only away, bring it back instead.");
    r = ask(s, err);
    if (r < 0) {
        return r;
    }
    jw_init(&w, &q);
    jw_obj(&w, NULL);
    jw_str(&w, "by", who(s));
    jw_obj_end(&w);
    r = spx_call(s, SOCKET, "storage.accept_loss", buf_str(&q), -1, LIMIT_NS, &done, err);
    if (r == 0) {
        puts("accepted: predastore does it when it starts next: make down and up, or "
             "systemctl restart spx-predastore");
    }
    return r;
}

/* The service does not start with a split set: this is done without it. */
static int give_up_drive(struct spx *s, uint64_t n, struct err *err)
{
    const char *path = s->cfg->predastore.drives[n - 1];
    AUTO_FD dir = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0) {
        return fail(err, -errno, "OpenFailed", "%s: %m", path);
    }
    if (flock(dir, LOCK_EX | LOCK_NB) < 0) {
        return fail(err, -EBUSY, "DriveBusy",
                    "%s is in use: predastore runs, and so its drives belong together", path);
    }
    if (faccessat(dir, DRIVE_FILE, F_OK, 0) < 0) {
        return fail(err, -ENOENT, "NoDrive", "%s is no drive of a store", path);
    }
    printf("Drive %" PRIu64 " (%s) is given up: what was written to it while the others were\n"
           "away is lost, and what the others have counts. Its files stay where they are.\n",
           n, path);
    int r = ask(s, err);
    if (r < 0) {
        return r;
    }
    struct str line = arena_fmt(s->arena, "%s/%s", path, "losses.log");
    AUTO_FD note = openat(dir, "losses.log", O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    char now[TIME_ISO_SIZE];
    if (note < 0 ||
        dprintf(note,
                "{\"time\":\"%s\",\"accepted_by\":\"%.*s\",\"lost\":[\"drive %" PRIu64 "\"]}\n",
                time_iso_s(time_wall_ns(), now), STR_ARG(who(s)), n) < 0 ||
        fsync(note) < 0) {
        return fail(err, -errno, "WriteFailed", "%.*s: %m", STR_ARG(line));
    }
    if (renameat(dir, DRIVE_FILE, dir, GIVEN_UP) < 0 || fsync(dir) < 0) {
        return fail(err, -errno, "RenameFailed", "%s/" DRIVE_FILE ": %m", path);
    }
    puts("done: start predastore. When nothing of the drive is needed any more, empty its "
         "folder "
         "and run 'spx admin storage drives replace'.");
    return 0;
}

int cmd_storage_accept_loss(struct spx *s, struct err *err)
{
    uint64_t n = 0;
    int r = spx_config(s, err);
    r = r < 0 || !s->cfg->uid_base ? r : spx_need_root(s, err);
    if (r < 0) {
        return r;
    }
    const char *drive = spx_value(s, "--drive");
    if (!drive) {
        return accept_log(s, err);
    }
    if (num_u64(str_c(drive), s->cfg->predastore.n_drives, &n) < 0 || n == 0) {
        return spx_usage_error(s, "there is no drive '%s': 1 to %zu", drive,
                               s->cfg->predastore.n_drives);
    }
    return give_up_drive(s, n, err);
}
