/* relay_route.h — which requests of the one endpoint are S3's. Pure.
 * Not here: passing them on (relay.h). Who may do what is checked where the request is served.
 * Threads:  no state.
 * Memory:   borrows.
 * Errors:   none: what fits nowhere stays with the query APIs, which answer it. */
#pragma once
#include "net/http_server.h"

/* 'domains': BUCKET.<one of them> is a bucket (model/config.h). */
bool relay_wants(const struct http_head *head, const char *const *domains, size_t n_domains);

/* The service in the credential scope of the Authorization header or of X-Amz-Credential, as sent;
 * STR_NONE when there is none ("ec2", "s3"). */
struct str relay_scope_service(const struct http_head *head);
