select pattern, queue from holdfast.subscription
