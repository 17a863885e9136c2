#include "base/fault_sim_int.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

static void *xdup(const void *p, size_t n)
{
    void *r = malloc(n ? n : 1);
    if (!r) {
        abort();
    }
    if (n) {
        memcpy(r, p, n);
    }
    return r;
}

static char *xstrdup(const char *s)
{
    return xdup(s, strlen(s) + 1);
}

/* --- images --- */

int sim_image_resize(struct sim_image *img, uint64_t size)
{
    if (size > FAULT_SIM_MAX_SIZE) {
        return -ENOMEM;
    }
    if (size < img->size) {
        memset(img->p + size, 0,
               img->size - size); /* it may grow again, and then reads zeros */
    }
    if (size > img->cap) {
        size_t cap = img->cap ? img->cap : 65536;
        while (cap < size) {
            cap *= 2;
        }
        void *p = img->p ? mremap(img->p, img->cap, cap, MREMAP_MAYMOVE)
                         : mmap(NULL, cap, PROT_READ | PROT_WRITE,
                                MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (p == MAP_FAILED) {
            return -ENOMEM;
        }
        img->p = p;
        img->cap = cap;
    }
    img->size = (size_t)size;
    return 0;
}

void sim_image_done(struct sim_image *img)
{
    if (img->p) {
        munmap(img->p, img->cap);
    }
    *img = (struct sim_image){0};
}

int sim_image_write(struct sim_image *img, const uint8_t *p, uint64_t n, uint64_t off)
{
    if (off + n > img->size) {
        int r = sim_image_resize(img, off + n);
        if (r < 0) {
            return r;
        }
    }
    if (n > 0) {
        memcpy(img->p + off, p, n);
    }
    return 0;
}

void sim_image_punch(struct sim_image *img, uint64_t off, uint64_t n)
{
    if (off < img->size) {
        memset(img->p + off, 0, MIN(n, img->size - off));
    }
}

int sim_apply_data(struct sim_image *img, const struct sim_op *op)
{
    switch (op->kind) {
    case SIM_WRITE: return sim_image_write(img, op->data, op->n, op->off);
    case SIM_SIZE: return sim_image_resize(img, op->n);
    case SIM_GROW:
        return op->off + op->n > img->size ? sim_image_resize(img, op->off + op->n) : 0;
    case SIM_PUNCH: sim_image_punch(img, op->off, op->n); return 0;
    default: return 0;
    }
}

/* --- names --- */

bool sim_is_name_op(const struct sim_op *op)
{
    return op->kind >= SIM_LINK;
}

/* There are no hard links: a node has at most one name, so whichever it has goes. That keeps any
 * subset of the journal a tree. */
void sim_apply_name(struct sim_node *dir, const struct sim_op *op)
{
    for (size_t i = 0; i < dir->entries.n;) {
        struct sim_entry *e = &dir->entries.v[i];
        bool is_replaced = op->kind != SIM_REMOVE && strcmp(e->name, op->name) == 0;
        if (e->node == op->child || is_replaced) {
            free(e->name);
            vec_remove(&dir->entries, i);
        } else {
            i++;
        }
    }
    if (op->kind != SIM_REMOVE) {
        vec_push(&dir->entries, (struct sim_entry){xstrdup(op->name), op->child});
    }
}

void sim_entries_free(struct sim_node *dir)
{
    for (size_t i = 0; i < dir->entries.n; i++) {
        free(dir->entries.v[i].name);
    }
    vec_free(&dir->entries);
}

/* --- nodes --- */

static struct sim_node *node_new(struct fault_sim *s, const struct stat *st)
{
    struct sim_node *n = calloc(1, sizeof(*n));
    if (!n) {
        abort();
    }
    n->ino = st->st_ino;
    n->mode = st->st_mode & 07777;
    n->is_dir = S_ISDIR(st->st_mode);
    vec_push(&s->nodes, n);
    return n;
}

static struct sim_node *node_of(struct fault_sim *s, const struct stat *st)
{
    for (size_t i = s->nodes.n; i-- > 0;) {
        if (s->nodes.v[i]->ino == st->st_ino && !s->nodes.v[i]->is_gone) {
            return s->nodes.v[i];
        }
    }
    /* An open file whose name is gone keeps its inode number, so nobody else has it. */
    for (size_t i = s->nodes.n; i-- > 0;) {
        if (s->nodes.v[i]->ino == st->st_ino) {
            return s->nodes.v[i];
        }
    }
    return NULL;
}

static struct sim_node *node_of_fd(struct fault_sim *s, int fd)
{
    struct stat st;
    return fstat(fd, &st) == 0 ? node_of(s, &st) : NULL;
}

static struct sim_node *node_of_name(struct fault_sim *s, int dir, const char *name)
{
    struct stat st;
    return fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) == 0 ? node_of(s, &st) : NULL;
}

static void op_free(struct sim_op *op)
{
    free(op->name);
    free(op->data);
}

/* What was unsynced of 'node' is durable now. */
static int make_durable(struct fault_sim *s, struct sim_node *node)
{
    size_t kept = 0;
    int ret = 0;
    for (size_t i = 0; i < s->ops.n; i++) {
        struct sim_op *op = &s->ops.v[i];
        if (op->node != node) {
            s->ops.v[kept++] = *op;
            continue;
        }
        if (sim_is_name_op(op)) {
            sim_apply_name(node, op);
        } else {
            int r = sim_apply_data(&node->img, op);
            ret = ret < 0 ? ret : r;
        }
        s->held_size -= op->kind == SIM_WRITE ? op->n : 0;
        op_free(op);
    }
    s->ops.n = kept;
    return ret;
}

/* --- loading --- */

static int load_file(struct fault_sim *s, int dir, const char *name, struct sim_node *n,
                     uint64_t size)
{
    AUTO_FD fd = openat(dir, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
    if (fd < 0) {
        return -errno;
    }
    int r = sim_image_resize(&n->img, size);
    if (r < 0) {
        return r;
    }
    ssize_t got = fault_pread(NULL, fd, n->img.p, size, 0);
    return got < 0 ? (int)got : (uint64_t)got == size ? 0 : -EIO;
}

static int load_dir(struct fault_sim *s, int dir_fd, struct sim_node *dir)
{
    DIR *d = fdopendir(dir_fd); /* takes it */
    if (!d) {
        int code = -errno;
        close(dir_fd);
        return code;
    }
    int ret = 0;
    for (struct dirent *e = readdir(d); e && ret == 0; e = readdir(d)) {
        struct stat st;
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) {
            continue;
        }
        if (fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
            ret = -errno;
        } else if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode)) {
            ret = -EINVAL;
        } else {
            struct sim_node *n = node_new(s, &st);
            vec_push(&dir->entries, (struct sim_entry){xstrdup(e->d_name), n});
            if (n->is_dir) {
                int fd = openat(dirfd(d), e->d_name,
                                O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                ret = fd < 0 ? -errno : load_dir(s, fd, n);
            } else {
                ret = load_file(s, dirfd(d), e->d_name, n, (uint64_t)st.st_size);
            }
        }
    }
    closedir(d);
    return ret;
}

/* --- calls --- */

static void journal(struct fault_sim *s, struct sim_op op)
{
    s->held_size += op.kind == SIM_WRITE ? op.n : 0;
    vec_push(&s->ops, op);
}

static int64_t do_open(struct fault_sim *s, const struct fault_call *c)
{
    struct stat st;
    bool was_there = fstatat(c->fd, c->name, &st, AT_SYMLINK_NOFOLLOW) == 0;
    struct sim_node *dir = node_of_fd(s, c->fd);
    if (!dir) {
        return -EBADF; /* a folder that was not opened through this door */
    }
    int64_t fd = fault_direct(c);
    if (fd < 0) {
        return fd;
    }
    if (!was_there && fstat((int)fd, &st) == 0) {
        struct sim_node *n = node_new(s, &st);
        journal(s, (struct sim_op){
                       .kind = SIM_LINK, .node = dir, .child = n, .name = xstrdup(c->name)});
    } else if (c->flags & O_TRUNC) {
        journal(s, (struct sim_op){.kind = SIM_SIZE, .node = node_of_fd(s, (int)fd)});
    }
    return fd;
}

static int64_t do_mkdir(struct fault_sim *s, const struct fault_call *c)
{
    struct sim_node *dir = node_of_fd(s, c->fd);
    int64_t r = dir ? fault_direct(c) : -EBADF;
    struct stat st;
    if (r == 0 && fstatat(c->fd, c->name, &st, AT_SYMLINK_NOFOLLOW) == 0) {
        journal(s, (struct sim_op){.kind = SIM_LINK,
                                   .node = dir,
                                   .child = node_new(s, &st),
                                   .name = xstrdup(c->name)});
    }
    return r;
}

static int64_t do_remove(struct fault_sim *s, const struct fault_call *c)
{
    struct sim_node *dir = node_of_fd(s, c->fd), *n = node_of_name(s, c->fd, c->name);
    int64_t r = dir ? fault_direct(c) : -EBADF;
    if (r == 0 && n) {
        n->is_gone = true;
        journal(s, (struct sim_op){.kind = SIM_REMOVE, .node = dir, .child = n});
    }
    return r;
}

static int64_t do_rename(struct fault_sim *s, const struct fault_call *c)
{
    struct sim_node *dir = node_of_fd(s, c->fd), *n = node_of_name(s, c->fd, c->name);
    struct sim_node *old = node_of_name(s, c->fd, c->new_name);
    int64_t r = dir ? fault_direct(c) : -EBADF;
    if (r == 0 && n && n != old) {
        if (old) {
            old->is_gone = true;
        }
        journal(s,
                (struct sim_op){
                    .kind = SIM_RENAME, .node = dir, .child = n, .name = xstrdup(c->new_name)});
    }
    return r;
}

static int64_t do_write(struct fault_sim *s, const struct fault_call *c, uint64_t n)
{
    struct sim_node *node = node_of_fd(s, c->fd);
    if (!node) {
        return -EBADF;
    }
    if (s->held_size + n > FAULT_SIM_MAX_SIZE) {
        return -ENOMEM;
    }
    uint8_t *data = malloc(n ? n : 1);
    if (!data) {
        return -ENOMEM;
    }
    uint64_t at = 0;
    for (int i = 0; i < c->n_iov && at < n; i++) {
        size_t part = (size_t)MIN((uint64_t)c->iov[i].iov_len, n - at);
        if (part) {
            memcpy(data + at, c->iov[i].iov_base, part);
        }
        at += part;
    }
    const struct iovec iov = {data, (size_t)n};
    const struct fault_call one = {
        .op = FAULT_PWRITE, .fd = c->fd, .iov = &iov, .n_iov = 1, .n = n, .off = c->off};
    int64_t r = fault_direct(&one);
    if (r < 0) {
        free(data);
        return r;
    }
    journal(
        s, (struct sim_op){
               .kind = SIM_WRITE, .node = node, .data = data, .off = c->off, .n = (uint64_t)r});
    return r;
}

static int64_t do_size(struct fault_sim *s, const struct fault_call *c)
{
    struct sim_node *node = node_of_fd(s, c->fd);
    int64_t r = node ? fault_direct(c) : -EBADF;
    if (r < 0 || (c->op == FAULT_ALLOCATE && c->flags != 0)) {
        return r;
    }
    journal(s, (struct sim_op){.kind = c->op == FAULT_TRUNCATE ? SIM_SIZE
                                       : c->op == FAULT_PUNCH  ? SIM_PUNCH
                                                               : SIM_GROW,
                               .node = node,
                               .off = c->off,
                               .n = c->n});
    return r;
}

static int64_t do_sync(struct fault_sim *s, const struct fault_call *c)
{
    struct sim_node *node = node_of_fd(s, c->fd);
    if (!node) {
        return -EBADF;
    }
    if (node->has_failed_sync) {
        s->n_resyncs++;
        return -EIO;
    }
    return make_durable(s, node);
}

static int64_t perform(struct fault_sim *s, const struct fault_call *c)
{
    switch (c->op) {
    case FAULT_OPEN: return do_open(s, c);
    case FAULT_MKDIR: return do_mkdir(s, c);
    case FAULT_UNLINK:
    case FAULT_RMDIR: return do_remove(s, c);
    case FAULT_RENAME: return do_rename(s, c);
    case FAULT_PWRITE: return do_write(s, c, c->n);
    case FAULT_TRUNCATE:
    case FAULT_ALLOCATE:
    case FAULT_PUNCH: return do_size(s, c);
    case FAULT_FDATASYNC:
    case FAULT_FSYNC:
    case FAULT_SYNC_DIR: return do_sync(s, c);
    default: return fault_direct(c); /* opening folders, reading */
    }
}

static int64_t planned_failure(struct fault_sim *s, const struct fault_call *c)
{
    bool is_sync = (FAULT_BIT(c->op) & FAULT_SYNCS) != 0;
    if (s->plan.effect == FAULT_HALF_DONE && c->op == FAULT_PWRITE) {
        (void)do_write(s, c, c->n / 2);
    } else if (s->plan.effect == FAULT_ALL_DONE) {
        int64_t r = perform(s, c);
        bool is_open =
            c->op == FAULT_OPEN || c->op == FAULT_OPEN_DIR || c->op == FAULT_OPEN_ROOT;
        if (is_open && r >= 0) {
            close((int)r);
        }
    }
    struct sim_node *node = is_sync ? node_of_fd(s, c->fd) : NULL;
    if (node) {
        node->has_failed_sync = true;
    }
    return s->plan.code;
}

static int64_t sim_call(struct fault_fs *fs, const struct fault_call *c)
{
    struct fault_sim *s = (struct fault_sim *)(void *)fs;
    pthread_mutex_lock(&s->lock);
    int64_t r = 0;
    bool counts = s->plan.ops == 0 || (s->plan.ops & FAULT_BIT(c->op));
    if (s->has_failed && s->plan.is_dead) {
        r = s->plan.code;
    } else if (counts && ++s->n_calls == s->plan.at) {
        s->has_failed = true;
        r = planned_failure(s, c);
    } else {
        r = perform(s, c);
    }
    pthread_mutex_unlock(&s->lock);
    return r;
}

/* --- the test's side --- */

struct fault_sim *fault_sim_new(const char *root, struct err *err)
{
    AUTO_FD fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    struct stat st;
    if (fd < 0 || fstat(fd, &st) < 0) {
        (void)fail(err, -errno, "OpenFailed", "%s: %m", root);
        return NULL;
    }
    struct fault_sim *s = calloc(1, sizeof(*s));
    if (!s) {
        abort();
    }
    s->fs.call = sim_call;
    pthread_mutex_init(&s->lock, NULL);
    s->root = node_new(s, &st);
    int r = load_dir(s, steal_fd(&fd), s->root);
    if (r < 0) {
        errno = -r;
        (void)fail(err, r, "ReadFailed", "%s: %m", root);
        fault_sim_free(s);
        return NULL;
    }
    return s;
}

void fault_sim_free(struct fault_sim *s)
{
    if (!s) {
        return;
    }
    for (size_t i = 0; i < s->ops.n; i++) {
        op_free(&s->ops.v[i]);
    }
    vec_free(&s->ops);
    for (size_t i = 0; i < s->nodes.n; i++) {
        sim_entries_free(s->nodes.v[i]);
        sim_image_done(&s->nodes.v[i]->img);
        free(s->nodes.v[i]);
    }
    vec_free(&s->nodes);
    pthread_mutex_destroy(&s->lock);
    free(s);
}

struct fault_fs *fault_sim_fs(struct fault_sim *s)
{
    return &s->fs;
}

void fault_sim_plan(struct fault_sim *s, const struct fault_plan *plan)
{
    s->plan = plan ? *plan : (struct fault_plan){0};
    s->n_calls = 0;
    s->has_failed = false;
}

uint64_t fault_sim_n_calls(const struct fault_sim *s)
{
    return s->n_calls;
}

bool fault_sim_has_failed(const struct fault_sim *s)
{
    return s->has_failed;
}

uint32_t fault_sim_n_unsynced(const struct fault_sim *s)
{
    return (uint32_t)s->ops.n;
}

uint32_t fault_sim_n_resyncs(const struct fault_sim *s)
{
    return s->n_resyncs;
}
