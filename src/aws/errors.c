#include "aws/errors.h"

#include "aws/xml_out.h"
#include "codec/json.h"
#include <errno.h>

struct row {
    const char *code;
    int status;
};

/* Codes whose status is not 400. */
static const struct row rows[] = {
    {"AuthFailure", 401},
    {"UnauthorizedOperation", 403},
    {"AccessDenied", 403},
    {"OptInRequired", 403},
    {"SignatureDoesNotMatch", 403},
    {"InvalidClientTokenId", 403},
    {"InvalidSignatureException", 403},
    {"MissingAuthenticationToken", 403},
    {"ExpiredToken", 400},
    {"DryRunOperation", 412},
    {"RequestEntityTooLarge", 413},
    {"RequestTooLarge", 413},
    {"InternalError", 500},
    {"InternalFailure", 500},
    {"InsufficientInstanceCapacity", 500},
    {"InsufficientHostCapacity", 500},
    {"InsufficientReservedInstanceCapacity", 500},
    {"InsufficientAddressCapacity", 400},
    {"InsufficientCapacity", 500},
    {"InsufficientVolumeCapacity", 500},
    {"NotImplemented", 501},
    {"Unavailable", 503},
    {"ServiceUnavailable", 503},
    {"RequestLimitExceeded", 503},
    {"Throttling", 400},
    /* of the JSON protocols */
    {"AccessDeniedException", 403},
    {"IncompleteSignatureException", 403},
    {"MissingAuthenticationTokenException", 403},
    {"RequestEntityTooLargeException", 413},
    {"SerializationException", 400},
    {"ServiceUnavailableException", 503},
    {"UnknownOperationException", 404},
    {"UnrecognizedClientException", 403},
};

/* Codes with 400 that follow none of the forms below. */
static const char *const plain[] = {
    "AddressLimitExceeded",
    "AttachmentLimitExceeded",
    "BlockedCapacity",
    "CannotDelete",
    "ConcurrentTagAccess",
    "CreditSpecificationUpdateInProgress",
    "DefaultSubnetAlreadyExistsInAvailabilityZone",
    "DefaultVpcAlreadyExists",
    "DependencyViolation",
    "DuplicateSubnetsInSameZone",
    "EncryptedVolumesNotSupported",
    "FilterLimitExceeded",
    "GatewayTimeout",
    "IdempotentInstanceTerminated",
    "IdempotentParameterMismatch",
    "IncorrectInstanceState",
    "IncorrectModificationState",
    "IncorrectState",
    "IncorrectStateException",
    "IncompatibleHostname",
    "IncompleteSignature",
    "InstanceAlreadyLinked",
    "InstanceCreditSpecification.NotSupported",
    "InsufficientFreeAddressesInSubnet",
    "LegacySecurityGroup",
    "MalformedQueryString",
    "MalformedInput",
    "MaxIOPSLimitExceeded",
    "MissingAction",
    "MissingParameter",
    "NonEBSInstance",
    "NoSuchVersion",
    "OperationNotPermitted",
    "PendingVerification",
    "ReservedInstancesLimitExceeded",
    "RequestExpired",
    "RequestTimeTooSkewed",
    "Resource.AlreadyAssigned",
    "ResourceCountExceeded",
    "ResourceNotReady",
    "ResourceLimitExceeded",
    "RouteAlreadyExists",
    "RulesPerSecurityGroupLimitExceeded",
    "SecurityGroupLimitExceeded",
    "SecurityGroupsPerInstanceLimitExceeded",
    "SecurityGroupsPerInterfaceLimitExceeded",
    "SnapshotCreationPerVolumeRateExceeded",
    "TagLimitExceeded",
    "TagPolicyViolation",
    "UnknownParameter",
    "UnknownPrincipalType.Unsupported",
    "UnknownVolumeType",
    "Unsupported",
    "UnsupportedException",
    "UnsupportedHostConfiguration",
    "UnsupportedInstanceAttribute",
    "UnsupportedOperation",
    "UnsupportedProtocol",
    "UnsupportedTenancy",
    "UpdateLimitExceeded",
    "ValidationError",
    "VcpuLimitExceeded",
    "VolumeInUse",
    "VolumeIOPSLimit",
    "VolumeLimitExceeded",
    "VolumeModificationRateExceeded",
    "VolumeModificationSizeLimitExceeded",
    "VolumeTypeNotAvailableInZone",
    "VpcLimitExceeded",
    "ZonesMismatched",
    "DeleteConflict",
    "EntityAlreadyExists",
    "LimitExceeded",
    "NoSuchEntity",
    "ExpiredTokenException",
    "InvalidAction",
    "UnsupportedHibernationConfiguration",
};

static int fixed_status(const char *code)
{
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        if (strcmp(rows[i].code, code) == 0) {
            return rows[i].status;
        }
    }
    for (size_t i = 0; i < ARRAY_LEN(plain); i++) {
        if (strcmp(plain[i], code) == 0) {
            return 400;
        }
    }
    return 0;
}

int aws_error_status(const struct aws_service *s, const char *code)
{
    for (uint16_t i = 0; s && i < s->n_errors; i++) {
        if (strcmp(aws_name(s, s->errors[i].code), code) == 0) {
            return s->errors[i].status;
        }
    }
    int status = fixed_status(code);
    if (status) {
        return status;
    }
    /* Forms that EC2's many codes follow; names of our own libraries follow none of them. */
    struct str c = str_c(code);
    bool is_aws = str_has_prefixc(c, "Invalid") || str_find(c, '.', 0) > 0 ||
                  str_has_suffix(c, STR("LimitExceeded"));
    return is_aws && c.n < 100 ? 400 : 0;
}

/* The store of the cloud is away, or busy, or took no notice in time: nothing is wrong here, and
 * it is worth another try. */
static bool is_outage(const char *name)
{
    static const char *const names[] = {"Unavailable", "Interrupted", "SlowDown", "NotYetSeen"};
    for (size_t i = 0; name && i < ARRAY_LEN(names); i++) {
        if (strcmp(name, names[i]) == 0) {
            return true;
        }
    }
    return false;
}

/* The same refusals have names of their own in the JSON protocols. */
static struct aws_error_out show_json(int status, const struct err *err)
{
    static const struct {
        const char *from, *to, *reason;
        int status;
    } names[] = {
        {"AccessDenied", "AccessDeniedException", "UNAUTHORIZED_ACCOUNT", 403},
        {"ExpiredToken", "ExpiredTokenException", NULL, 403},
        {"IncompleteSignature", "IncompleteSignatureException", NULL, 403},
        {"InvalidClientTokenId", "UnrecognizedClientException", NULL, 403},
        {"MissingAuthenticationToken", "MissingAuthenticationTokenException", NULL, 403},
        {"RequestTooLarge", "RequestEntityTooLargeException", NULL, 413},
        {"SignatureDoesNotMatch", "InvalidSignatureException", NULL, 403},
        {"ValidationError", "ValidationException", "INVALID_PARAMETER_VALUE", 400},
    };
    if (is_outage(err->name)) {
        return (struct aws_error_out){
            503, "ServiceUnavailableException",
            "The service cannot handle the request now: try it again.", NULL};
    }
    if (status == 0 || strcmp(err->name, "InternalError") == 0) {
        return (struct aws_error_out){500, "InternalServerException",
                                      "An internal error has occurred.", NULL};
    }
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        if (strcmp(err->name, names[i].from) == 0) {
            return (struct aws_error_out){names[i].status, names[i].to, err->msg,
                                          err->hint ? err->hint : names[i].reason};
        }
    }
    return (struct aws_error_out){status, err->name, err->msg, err->hint};
}

struct aws_error_out aws_error_show(const struct aws_service *s, const struct err *err)
{
    int status = err->name ? aws_error_status(s, err->name) : 0;
    if (err->code == -EPERM && err->name && strcmp(err->name, "AccessDenied") == 0) {
        status = 0; /* the store refused us, not the caller */
    }
    if (s && s->protocol == AWS_PROTOCOL_REST_JSON) {
        return show_json(status, err);
    }
    if (is_outage(err->name)) {
        return (struct aws_error_out){
            503, "Unavailable", "The server is overloaded and can't handle the request.", NULL};
    }
    if (status == 0 || strcmp(err->name, "InternalError") == 0) {
        return (struct aws_error_out){500, "InternalError", "An internal error has occurred",
                                      NULL};
    }
    return (struct aws_error_out){status, err->name, err->msg, NULL};
}

void aws_error_body(const struct aws_service *s, const struct aws_error_out *e,
                    struct str request_id, struct buf *out)
{
    if (s && s->protocol == AWS_PROTOCOL_REST_JSON) {
        struct jw w;
        jw_init(&w, out);
        jw_obj(&w, NULL);
        jw_cstr(&w, "Message", e->msg);
        if (e->reason) {
            jw_cstr(&w, "Reason", e->reason);
        }
        jw_obj_end(&w);
        return;
    }
    buf_addc(out, "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n");
    if (s && s->protocol == AWS_PROTOCOL_EC2) {
        buf_addc(out, "<Response><Errors><Error>");
        xml_elemc(out, "Code", e->code);
        xml_elemc(out, "Message", e->msg);
        buf_addc(out, "</Error></Errors>");
        xml_elem(out, "RequestID", request_id);
        buf_addc(out, "</Response>");
        return;
    }
    if (s) {
        buf_fmt(out, "<ErrorResponse xmlns=\"%s\"><Error>", s->xmlns);
    } else {
        buf_addc(out, "<ErrorResponse><Error>");
    }
    xml_elemc(out, "Type", e->status >= 500 ? "Receiver" : "Sender");
    xml_elemc(out, "Code", e->code);
    xml_elemc(out, "Message", e->msg);
    buf_addc(out, "</Error>");
    xml_elem(out, "RequestId", request_id);
    buf_addc(out, "</ErrorResponse>");
}
