"""From the bytes of a request to the bytes of its response: operations, plans, negotiation, answering.

The stages of a request, and the word for each::

    body      the bytes of the request
      │  parse the format of the body
    fields    the JSON object, its tensors not decoded
      │  validate everything except the tensors
    Plan      options and selected names, bound to a Spec (op, attributes, dtype, mode, device); kept
      │  decode the tensors
    Call      the work, an Evaluation or steps, at a Point (a Spec with its inputs), and the writer of its result
      │  run it inline, in a batch or on the scheduler
    result    arrays by name, and the derivatives that are absent
      │  lay out the response
    Reply     a Layout, filled: the bytes of the response
"""
