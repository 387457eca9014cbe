// queued_calls.hpp -- QueuedCalls: calls that a test queues itself, on a stream of its own.
#pragma once

#include "attention/attention_fixture.hpp"

namespace flashspan::tests {

/// Calls of both directions with workspaces that live on, for whoever queues them himself.
struct QueuedCalls {
  ForwardCall forward;
  BackwardCall backward;
  PoisonedWorkspace forward_workspace, backward_workspace;

  QueuedCalls(const PlacedCall& placed, Attention& attention, Device device, Stream stream)
      : forward(placed.forward_call()),
        backward(placed.backward_call()),
        forward_workspace(device, expect_value(attention.workspace_bytes(forward))),
        backward_workspace(device, expect_value(attention.workspace_bytes(backward))) {
    forward.workspace = forward_workspace.data();
    forward.workspace_bytes = forward_workspace.bytes();
    backward.workspace = backward_workspace.data();
    backward.workspace_bytes = backward_workspace.bytes();
    forward.stream = backward.stream = stream;
  }
  void queue(Attention& attention) const {
    expect_value(attention.forward(forward));
    expect_value(attention.backward(backward));
  }
};

}  // namespace flashspan::tests
