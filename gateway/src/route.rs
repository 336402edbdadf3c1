//! Which route takes a request; pure.
use crate::config;
use http::Method;
/// Finds the most specific route whose hosts and methods match; among equal paths the first in the file.
#[derive(Debug)]
pub struct Router {}
/// A path template that cannot be used.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct BadTemplate(String);
impl Router {
    /// A router over `routes`; on failure the index of the offending route.
    pub fn build(routes: &[config::Route]) -> Result<Self, (usize, BadTemplate)> {
        let _ = routes;
        unimplemented!()
    }
    /// The index of the route that takes the request. `host`: lower case, without port; `path`: normalised.
    #[must_use]
    pub fn find(&self, method: &Method, host: &str, path: &str) -> Option<usize> {
        let _ = (method, host, path);
        unimplemented!()
    }
}
