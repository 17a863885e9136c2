/* folder.h — the files of volumes and images: made aside, synced, renamed into place; removed
 * by way of a trash folder.
 * Not here: who wants them (volume.h, image.h), what is in meta.json (meta.h).
 * Layout:   docs/formats/volume.md.
 * Threads:  any; two threads must not work on the same id at once.
 * Memory:   folder_open() gives.
 * Errors:   -EIO "FolderFailed" with the path's last part; -ENOENT "NoSuchFile"; -EBUSY
 *           "FolderInUse": another process has it. */
#pragma once
#include "base/err.h"
#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>

struct folder;

enum folder_kind { FOLDER_VOLUME, FOLDER_IMAGE, FOLDER_KIND_N };

/* Makes volumes/, images/ and trash/ below 'path' where they are missing (mode 0700) and takes
 * the lock of the whole. */
MUST_CHECK int folder_open(const char *path, struct folder **ret, struct err *err);
void folder_close(struct folder *f);
DEFINE_CLEANUP(struct folder *, folder_close);
int folder_fd(const struct folder *f); /* for questions about the file system */

/* Removes what a killed process left: half-made folders and trash. Takes as long as the
 * deletions take. */
MUST_CHECK int folder_clean(struct folder *f, struct err *err);

bool folder_has(const struct folder *f, enum folder_kind k, struct str id);

/* A new, empty folder beside the final ones; what was there under that id is removed. *ret_fd
 * is the caller's. */
MUST_CHECK int folder_begin(struct folder *f, enum folder_kind k, struct str id, int *ret_fd,
                            struct err *err);
/* Its path, for a child process; valid until the next call of this thread. */
const char *folder_begun_path(const struct folder *f, enum folder_kind k, struct str id);
/* Makes it durable and visible in one step: syncs data and meta.json, the folder, renames,
 * syncs the parent. */
MUST_CHECK int folder_publish(struct folder *f, enum folder_kind k, struct str id, int fd,
                              struct err *err);
/* Removes a folder that was begun and shall not be. */
void folder_abandon(struct folder *f, enum folder_kind k, struct str id);

/* Out of sight in one durable step, then freed. 0 when it is not there. */
MUST_CHECK int folder_remove(struct folder *f, enum folder_kind k, struct str id,
                             struct err *err);

/* The file 'name' ("data", "meta.json", ...) of a published folder. */
MUST_CHECK int folder_open_file(const struct folder *f, enum folder_kind k, struct str id,
                                const char *name, int flags, int *ret_fd, struct err *err);
/* A small file in a folder that was begun. Synced by folder_publish() when it is named there,
 * else by nobody. */
MUST_CHECK int folder_write_file(int fd, const char *name, struct str text, struct err *err);
/* Removes one file of a published folder, durably; fine when it is not there. */
MUST_CHECK int folder_remove_file(struct folder *f, enum folder_kind k, struct str id,
                                  const char *name, struct err *err);

/* Makes or replaces one file of a published folder in one durable step: 'fill' writes it. Two
 * threads must not do so for one file at once. */
MUST_CHECK int folder_replace_file(struct folder *f, enum folder_kind k, struct str id,
                                   const char *name,
                                   int (*fill)(void *ctx, int fd, struct err *err), void *ctx,
                                   struct err *err);
MUST_CHECK int folder_replace_text(struct folder *f, enum folder_kind k, struct str id,
                                   const char *name, struct str text, struct err *err);

/* Calls fn for every published id. */
MUST_CHECK int folder_each(const struct folder *f, enum folder_kind k,
                           void (*fn)(void *ctx, struct str id), void *ctx, struct err *err);
