//! Messages: calls, replies, and the errors that every service has.

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value, json};

/// Largest call, in bytes.
pub const MAX_CALL: usize = 256 << 10;
/// Largest reply that a client reads, in bytes.
pub const MAX_REPLY: usize = 64 << 20;

/// Call of a method.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Call {
    /// Method with its interface: `org.varlink.service.GetInfo`.
    pub method: String,
    /// Parameters by their names.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Whether the client takes more than one reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub more: bool,
    /// Whether the client wants no reply.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub oneway: bool,
    /// Whether the client wants to speak another protocol afterwards. No service here can.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub upgrade: bool,
}

impl Call {
    /// A call with parameters, which are an object.
    pub fn new(method: &str, parameters: Map<String, Value>) -> Self {
        Self { method: method.into(), parameters, more: false, oneway: false, upgrade: false }
    }

    /// Parses the parameters.
    ///
    /// # Errors
    /// `org.varlink.service.InvalidParameter`, with what is wrong.
    pub fn parameters<T: DeserializeOwned>(&self) -> Result<T, CallError> {
        serde_json::from_value(Value::Object(self.parameters.clone()))
            .map_err(|error| CallError::invalid_parameter(&error.to_string()))
    }
}

/// Reply to a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Reply {
    /// Name of the error, if the call failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// Results of the method, or parameters of the error.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub parameters: Map<String, Value>,
    /// Whether further replies follow.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub continues: bool,
}

/// Failure of a call, as the reply names it.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{name} {}", Value::Object(parameters.clone()))]
pub struct CallError {
    /// Name with its interface: `org.varlink.service.MethodNotFound`.
    pub name: String,
    /// Parameters of the error.
    pub parameters: Map<String, Value>,
}

impl CallError {
    /// An error of an interface, with one parameter.
    pub fn new(name: &str, parameter: &str, value: impl Into<Value>) -> Self {
        let parameters = Map::from_iter([(parameter.to_owned(), value.into())]);
        Self { name: name.into(), parameters }
    }

    /// No such interface.
    pub(crate) fn interface_not_found(interface: &str) -> Self {
        Self::new("org.varlink.service.InterfaceNotFound", "interface", interface)
    }

    /// The interface has no such method.
    pub fn method_not_found(method: &str) -> Self {
        Self::new("org.varlink.service.MethodNotFound", "method", method)
    }

    /// A parameter is missing, unknown, or of another type.
    pub fn invalid_parameter(problem: &str) -> Self {
        Self::new("org.varlink.service.InvalidParameter", "parameter", problem)
    }

    /// The user may not call this.
    pub fn permission_denied() -> Self {
        Self { name: "org.varlink.service.PermissionDenied".into(), parameters: Map::new() }
    }
}

impl From<Result<Value, CallError>> for Reply {
    fn from(outcome: Result<Value, CallError>) -> Self {
        match outcome {
            Ok(Value::Object(parameters)) => Self { parameters, ..Self::default() },
            Ok(Value::Null) => Self::default(),
            Ok(other) => Self { parameters: Map::from_iter([("value".into(), other)]), ..Self::default() },
            Err(CallError { name, parameters }) => Self { error: Some(name), parameters, ..Self::default() },
        }
    }
}

/// Interface that every service has, and its description.
pub(crate) const SERVICE_INTERFACE: &str = "org.varlink.service";
/// Source: <https://varlink.org/Service>.
pub(crate) const SERVICE_DESCRIPTION: &str = "\
# Interface that every varlink service has
interface org.varlink.service

# Names of the vendor, product, version and address, and the interfaces of the service
method GetInfo() -> (
  vendor: string,
  product: string,
  version: string,
  url: string,
  interfaces: []string
)

# Description of an interface
method GetInterfaceDescription(interface: string) -> (description: string)

# The service has no such interface
error InterfaceNotFound (interface: string)

# The interface has no such method
error MethodNotFound (method: string)

# The method is described and does not exist
error MethodNotImplemented (method: string)

# A parameter is missing, unknown, or of another type
error InvalidParameter (parameter: string)

# The user may not call the method
error PermissionDenied ()

# The method has more than one reply and was called for one
error ExpectedMore ()
";

/// Encodes a message with the NUL byte behind it.
pub(crate) fn encode(message: &impl Serialize) -> Vec<u8> {
    // Values of strings, numbers and lists can't fail.
    let mut bytes = serde_json::to_vec(message).unwrap_or_else(|_| json!({}).to_string().into_bytes());
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_the_form_that_other_programs_expect() {
        let call = Call::new("org.varlink.service.GetInfo", Map::new());
        assert_eq!(encode(&call), b"{\"method\":\"org.varlink.service.GetInfo\"}\0");
        let reply = Reply::from(Err(CallError::method_not_found("a.b")));
        assert_eq!(
            encode(&reply),
            b"{\"error\":\"org.varlink.service.MethodNotFound\",\"parameters\":{\"method\":\"a.b\"}}\0"
        );
        assert_eq!(encode(&Reply::from(Ok(json!({"a": 1})))), b"{\"parameters\":{\"a\":1}}\0");
        assert_eq!(encode(&Reply::from(Ok(Value::Null))), b"{}\0");
    }

    #[test]
    fn a_wrong_parameter_is_named() {
        #[derive(Debug, Deserialize)]
        struct Parameters {
            _interface: String,
        }
        let call = Call::new("a.b", Map::from_iter([("interface".to_owned(), json!(1))]));
        let error = call.parameters::<Parameters>().expect_err("no text");
        assert_eq!(error.name, "org.varlink.service.InvalidParameter");
    }
}
