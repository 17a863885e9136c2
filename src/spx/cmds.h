/* cmds.h — what the tables of commands (main.c) point to.
 * Not here: how they are found and parsed (cmd.h).
 * Threads:  one.
 * Memory:   none.
 * Errors:   as cmd.h says. */
#pragma once
#include "spx/cmd.h"

int cmd_get_nodes(struct spx *s, struct err *err);
int cmd_get_vms(struct spx *s, struct err *err);
int cmd_get_volumes(struct spx *s, struct err *err);
int cmd_get_images(struct spx *s, struct err *err);
int cmd_get_accounts(struct spx *s, struct err *err);
int cmd_get_buckets(struct spx *s, struct err *err);
int cmd_top_nodes(struct spx *s, struct err *err);
int cmd_top_storage(struct spx *s, struct err *err);
int cmd_top_volumes(struct spx *s, struct err *err);

int cmd_admin_init(struct spx *s, struct err *err);
int cmd_admin_prepare(struct spx *s, struct err *err);
int cmd_account_create(struct spx *s, struct err *err);
int cmd_account_delete(struct spx *s, struct err *err);
int cmd_account_key(struct spx *s, struct err *err);
int cmd_state_get(struct spx *s, struct err *err);
int cmd_state_list(struct spx *s, struct err *err);
int cmd_state_stats(struct spx *s, struct err *err);
int cmd_state_dump(struct spx *s, struct err *err);
int cmd_state_restore(struct spx *s, struct err *err);
int cmd_images_build(struct spx *s, struct err *err);
int cmd_images_import(struct spx *s, struct err *err);
int cmd_images_remove(struct spx *s, struct err *err);
int cmd_cert_renew(struct spx *s, struct err *err);
int cmd_storage_check(struct spx *s, struct err *err);
int cmd_storage_scrub(struct spx *s, struct err *err);
int cmd_storage_rebuild_index(struct spx *s, struct err *err);
int cmd_storage_accept_loss(struct spx *s, struct err *err);
int cmd_storage_drives(struct spx *s, struct err *err);
int cmd_storage_compact(struct spx *s, struct err *err);
int cmd_volumes_check(struct spx *s, struct err *err);
int cmd_volumes_export(struct spx *s, struct err *err);
int cmd_volumes_import(struct spx *s, struct err *err);
int cmd_volumes_orphans(struct spx *s, struct err *err);

int cmd_bench_block(struct spx *s, struct err *err);
int cmd_bench_compare(struct spx *s, struct err *err);
int cmd_bench_s3(struct spx *s, struct err *err);
int cmd_config_check(struct spx *s, struct err *err);
int cmd_config_get(struct spx *s, struct err *err);
int cmd_config_doc(struct spx *s, struct err *err);
int cmd_network_lan(struct spx *s, struct err *err);
int cmd_profile_write(struct spx *s, struct err *err);
int cmd_profile_show(struct spx *s, struct err *err);
int cmd_profile_remove(struct spx *s, struct err *err);
int cmd_aws(struct spx *s, struct err *err);
int cmd_up(struct spx *s, struct err *err);
int cmd_down(struct spx *s, struct err *err);
int cmd_completion(struct spx *s, struct err *err);
int cmd_manual(struct spx *s, struct err *err);
int cmd_doctor(struct spx *s, struct err *err);
int cmd_support_bundle(struct spx *s, struct err *err);
int cmd_version(struct spx *s, struct err *err);
